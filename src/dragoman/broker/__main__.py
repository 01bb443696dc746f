"""`python -m dragoman.broker`: the program that `broker.client.launch` starts. Not for users."""

import sys

from dragoman.broker.server.process import main

if __name__ == "__main__":
    sys.exit(main())
