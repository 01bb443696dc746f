"""`python -m dragoman.catalogue` prints the page about the peers that come with dragoman."""

from __future__ import annotations

import sys

from dragoman.catalogue.load import Catalogue, built_in
from dragoman.catalogue.matrix import page

if __name__ == "__main__":
    sys.stdout.write(page(Catalogue(built_in())))
