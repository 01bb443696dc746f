from __future__ import annotations

from dragoman.verify import remedies


def test_every_remedy_is_a_sentence_of_its_own() -> None:
    texts = {name: text for name, text in vars(remedies).items() if name.isupper()}
    assert len(texts) > 20
    assert len(set(texts.values())) == len(texts)
    for name, text in texts.items():
        assert text[0].isupper() and text.endswith("."), name
        # The table of the documentation is cut at these.
        assert "|" not in text and "\n" not in text, name
