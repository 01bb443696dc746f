"""Print the reference page of the built-in peers: ``python -m dragoman.catalogue``."""

from __future__ import annotations

import sys

from dragoman.catalogue.load import Catalogue, built_in
from dragoman.catalogue.matrix import page

if __name__ == "__main__":
    sys.stdout.write(page(Catalogue(built_in())))
