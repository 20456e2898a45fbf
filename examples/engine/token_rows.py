"""One line per emitted token: `token (logprob) | top: ['a':-0.107, 'b':-2.482, 'c':-4.357]`."""

from engine.corpus import Vocabulary
from engine.verifier import EmittedToken


def token_row(token: EmittedToken, vocabulary: Vocabulary) -> str:
    """The line of `token`, log probabilities to three decimals, most likely tokens first, these quoted as in Python."""
    top = ", ".join(f"{vocabulary.words[entry.token_id]!r}:{entry.logprob:.3f}" for entry in token.top)
    return f"{_on_one_line(vocabulary.words[token.token_id])} ({token.logprob:.3f}) | top: [{top}]"


def _on_one_line(word: str) -> str:
    return word.replace("\n", "\\n")
