"""`python -m dragoman.hub.catalogue` prints the page about the peers that come with dragoman."""

from __future__ import annotations

import sys

from dragoman.hub.catalogue.loading import Catalogue, built_in
from dragoman.hub.catalogue.matrix import page

if __name__ == "__main__":
    sys.stdout.write(page(Catalogue(built_in())))
