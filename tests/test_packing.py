"""Best-fit packing against a plain search written from its rule, and what it must conserve."""

import numpy as np
import pytest

from looped.data.packing import BestFitPacker

BOS = 0


def documents(n, longest, seed=0):
    """Documents whose tokens are all different, but for the BOS in front."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, longest + 1, n)
    start, found = 1, []
    for length in lengths:
        found.append(np.array([BOS, *range(start, start + length - 1)]))
        start += length - 1
    return found


def pack(docs, row_len, buffer_docs=1000):
    """All rows of a list of documents."""
    packer = BestFitPacker(row_len, buffer_docs)
    return [row for doc in docs for row in packer.add(doc)] + packer.finish()


def plainly(docs, row_len, buffer_docs):
    """The rule, searched for by looking at every waiting document."""
    queue, waiting, rows = list(docs), [], []
    while True:
        while queue and (len(waiting) < buffer_docs or sum(map(len, waiting)) < row_len):
            waiting.append(queue.pop(0))
        row = []
        while len(row) < row_len and waiting:
            room = row_len - len(row)
            fitting = [doc for doc in waiting if len(doc) <= room]
            chosen = max(fitting, key=len) if fitting else min(waiting, key=len)
            waiting = [doc for doc in waiting if doc is not chosen]
            row += list(chosen[:room])
        if len(row) < row_len:
            return rows
        rows.append(row)


@pytest.mark.parametrize("buffer_docs", [1, 2, 7, 50, 1000])
@pytest.mark.parametrize("longest", [4, 20, 90])
def test_rows_are_those_of_the_plain_search(buffer_docs, longest):
    docs = documents(300, longest)
    found = np.array(pack(docs, 33, buffer_docs))
    np.testing.assert_array_equal(found, plainly(docs, 33, buffer_docs))


def test_every_row_is_full_and_begins_with_a_document():
    rows = pack(documents(500, 60), 33, 20)
    assert len(rows) > 100
    assert {len(row) for row in rows} == {33}
    assert {row[0] for row in rows} == {BOS}


@pytest.mark.parametrize("longest", [5, 33, 200])
def test_every_token_is_in_one_row_or_counted_as_discarded(longest):
    docs = documents(400, longest)
    packer = BestFitPacker(33, 30)
    rows = [row for doc in docs for row in packer.add(doc)] + packer.finish()
    assert packer.finish() == []
    assert packer.waiting == []
    assert sum(map(len, docs)) == 33 * len(rows) + packer.discarded
    placed = np.concatenate(rows)
    placed = placed[placed != BOS]
    assert len(placed) == len(np.unique(placed))


def test_a_documents_tokens_stay_together_from_its_beginning():
    docs = documents(200, 50)
    begins = {tuple(doc) for doc in docs}
    for row in pack(docs, 33, 20):
        ends = [*np.flatnonzero(row == BOS)[1:], 33]
        parts = np.split(row, ends[:-1])
        whole = [tuple(part) for part in parts]
        assert all(part in begins for part in whole[:-1])
        assert any(begin[: len(whole[-1])] == whole[-1] for begin in begins)


def test_a_small_example_is_packed_as_by_hand():
    docs = [np.full(length, length) for length in (5, 3, 9, 2, 3)]
    # room 8: 5 fits best; room 3: the earlier 3; then 8: the later 3, 2; room 3: 9 is cropped
    rows = [list(row) for row in pack(docs, 8)]
    assert rows == [[5] * 5 + [3] * 3, [3] * 3 + [2] * 2 + [9] * 3]


def test_a_packer_rebuilt_from_its_waiting_documents_packs_the_same_rows():
    docs = documents(300, 40)
    packer, rows = BestFitPacker(33, 25), []
    for number, doc in enumerate(docs):
        rows += packer.add(doc)
        if number % 37 == 0:
            waiting, packer = packer.waiting, BestFitPacker(33, 25)
            assert not any(packer.add(document) for document in waiting)
    np.testing.assert_array_equal(rows + packer.finish(), pack(docs, 33, 25))


def test_without_tokens_there_is_no_row():
    assert pack([], 33) == []
    with pytest.raises(ValueError, match="no tokens"):
        BestFitPacker(33).add(np.array([], dtype=int))
    with pytest.raises(ValueError, match="expected at least 2 and 1"):
        BestFitPacker(1)
