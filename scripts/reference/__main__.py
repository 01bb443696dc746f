"""Write the generated parts of the reference pages: ``python -m scripts.reference``.

Each page ends with such a part, after the line ``<!-- from the code -->``. The tests in tests/docs
compare the pages with the code.
"""

from __future__ import annotations

from scripts.reference.pages import PAGES, REFERENCE, updated

if __name__ == "__main__":
    for name in PAGES:
        page = REFERENCE / name
        page.write_text(updated(name), "utf-8")
