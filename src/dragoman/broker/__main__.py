"""`python -m dragoman.broker`: the program that `client.launch` starts. People do not start it."""

import sys

from dragoman.broker.server.process import main

if __name__ == "__main__":
    sys.exit(main())
