import pytest

from engine.corpus import PARAGRAPH_MARK, Corpus, Vocabulary


def test_the_text_has_over_8000_distinct_words(corpus: Corpus) -> None:
    assert len(corpus.vocabulary) - 1 > 8000


def test_ids_and_words_are_one_to_one(corpus: Corpus) -> None:
    vocabulary = corpus.vocabulary
    assert len(set(vocabulary.words)) == len(vocabulary) == len(vocabulary.ids)
    assert all(vocabulary.ids[word] == token_id for token_id, word in enumerate(vocabulary.words))
    assert vocabulary.ids[PARAGRAPH_MARK] == 0


def test_the_whole_text_survives_a_round_trip(corpus: Corpus) -> None:
    for token_ids in (corpus.training_ids, corpus.held_out_ids):
        text = corpus.vocabulary.decode(token_ids)
        assert corpus.vocabulary.encode(text) == token_ids
        assert corpus.vocabulary.decode(corpus.vocabulary.encode(text)) == text


def test_words_keep_their_punctuation_and_paragraphs_their_end() -> None:
    vocabulary = Vocabulary.of([("to", "be,", "or"), ("not", "to", "be")])
    assert vocabulary.decode(vocabulary.encode("to  be,\tor \n not to be\n")) == "to be, or\nnot to be\n"
    assert vocabulary.words[:2] == (PARAGRAPH_MARK, "to")  # after the mark, the most frequent word


def test_a_word_that_the_text_lacks_is_refused(corpus: Corpus) -> None:
    with pytest.raises(KeyError, match="supercalifragilistic"):
        corpus.vocabulary.encode("the supercalifragilistic object")


def test_prompts_are_beginnings_of_paragraphs_that_no_model_saw(corpus: Corpus) -> None:
    held_out = corpus.vocabulary.decode(corpus.held_out_ids).split(PARAGRAPH_MARK)
    training = corpus.vocabulary.decode(corpus.training_ids).split(PARAGRAPH_MARK)
    assert len(corpus.prompts) >= 8
    for prompt in map(corpus.vocabulary.decode, corpus.prompts):
        assert any(paragraph.startswith(prompt) for paragraph in held_out)
    assert not set(filter(None, held_out)) & set(training)
