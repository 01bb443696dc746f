"""`python -m dragoman.hub.broker`: the program that `launch` starts. People do not start it."""

import sys

from dragoman.hub.broker.process import main

if __name__ == "__main__":
    sys.exit(main())
