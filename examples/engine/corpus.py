"""English text that every CPython ships, as token ids: the language reference behind `help()`."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pydoc_data.topics import topics

PARAGRAPH_MARK = "\n"
"""The token that ends every paragraph. It is id 0, and also stands before the first word of a text."""

HELD_OUT_EVERY = 20
"""One paragraph in this many is kept from the models, to measure them and to prompt them."""

PROMPT_WORDS = 8

TABLE_EDGE = "+-"
"""Paragraphs that begin so are tables drawn in characters: no English, and left out."""

_BLANK_LINES = re.compile(r"\n\s*\n")
_PLAIN_WORD = re.compile(r"[A-Za-z][a-z]*,?")


@dataclass(frozen=True)
class Vocabulary:
    """A reversible map between the words of a text and token ids.

    A word is a run of characters without white space, so punctuation stays attached and the words of a paragraph are
    joined by single spaces. Ids descend in frequency, ties in code-point order; the paragraph mark has id 0.
    """

    words: tuple[str, ...]
    ids: dict[str, int]

    @classmethod
    def of(cls, paragraphs: Iterable[tuple[str, ...]]) -> "Vocabulary":
        """The vocabulary of every word in `paragraphs`."""
        counts = Counter(word for paragraph in paragraphs for word in paragraph)
        words = (PARAGRAPH_MARK, *sorted(counts, key=lambda word: (-counts[word], word)))
        return cls(words, {word: token_id for token_id, word in enumerate(words)})

    def __len__(self) -> int:
        return len(self.words)

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`. Raises KeyError for a word that the vocabulary lacks.

        A line feed is the paragraph mark; other white space only separates words.
        """
        return [self.ids[token] for token in re.findall(r"\n|[^\s]+", text)]

    def decode(self, token_ids: Iterable[int]) -> str:
        """Text of `token_ids`: words with one space between, no space around a paragraph mark."""
        text = " ".join(self.words[token_id] for token_id in token_ids)
        return text.replace(f" {PARAGRAPH_MARK}", PARAGRAPH_MARK).replace(f"{PARAGRAPH_MARK} ", PARAGRAPH_MARK)


@dataclass(frozen=True)
class Corpus:
    """The text as the engine uses it.

    `training_ids` and `held_out_ids` are whole paragraphs one after another, each ended by the paragraph mark.
    `prompts` are the first words of held-out paragraphs, which the models have not seen.
    """

    num_topics: int
    num_characters: int
    vocabulary: Vocabulary
    training_ids: list[int]
    held_out_ids: list[int]
    prompts: list[list[int]]


def load_corpus() -> Corpus:
    """Read, split and number the text of the running interpreter. Its size differs between Python versions."""
    texts = [topics[name] for name in sorted(topics)]
    # The reference repeats whole paragraphs between topics. Each counts once, or the held-out part would not be unseen.
    paragraphs = list(dict.fromkeys(_paragraphs(texts)))
    vocabulary = Vocabulary.of(paragraphs)
    training = [p for index, p in enumerate(paragraphs) if index % HELD_OUT_EVERY != 0]
    held_out = paragraphs[::HELD_OUT_EVERY]
    return Corpus(
        num_topics=len(texts),
        num_characters=sum(map(len, texts)),
        vocabulary=vocabulary,
        training_ids=_joined(vocabulary, training),
        held_out_ids=_joined(vocabulary, held_out),
        prompts=[[vocabulary.ids[word] for word in p[:PROMPT_WORDS]] for p in held_out if _is_prose(p)],
    )


def _paragraphs(texts: Iterable[str]) -> Iterator[tuple[str, ...]]:
    for text in texts:
        for paragraph in _BLANK_LINES.split(text):
            words = tuple(paragraph.split())
            if words and not words[0].startswith(TABLE_EDGE):
                yield words


def _joined(vocabulary: Vocabulary, paragraphs: Iterable[tuple[str, ...]]) -> list[int]:
    return [vocabulary.ids[word] for paragraph in paragraphs for word in (*paragraph, PARAGRAPH_MARK)]


def _is_prose(paragraph: tuple[str, ...]) -> bool:
    """Whether it starts like a sentence of plain words and goes on well beyond a prompt; code and tables do not."""
    start = paragraph[:PROMPT_WORDS]
    return (
        len(paragraph) >= 2 * PROMPT_WORDS
        and start[0][0].isupper()
        and all(_PLAIN_WORD.fullmatch(word) for word in start)
    )
