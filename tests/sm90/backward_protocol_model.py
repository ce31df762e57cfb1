#!/usr/bin/env python3
"""A model of the barriers of the Hopper backward kernel (src/sm90/backward/shared_memory.hpp and the four roles).

    backward_protocol_model.py [SCHEDULES]

The roles are written down once more as generators that yield wherever another role may get ahead; copies land at any
time after they were issued, and a product reads its tiles from its issue to the wait for it. SCHEDULES random
interleavings of random work run in each form of the column role, and each must end, with every read finding the tile
or block it wants from its beginning to its end. Then each known wrong protocol runs, and at least one of ten times as
many schedules must find it out. A warpgroup is one actor: what its four warps owe each other is not modelled. In
deterministic mode the barriers are the same and dS and K have no reader in the dQ warpgroup. The model stands for the
protocol only: that the kernel follows it is for the reader to see, line by line.
"""
import random
import sys
from typing import NamedTuple, Optional

sys.dont_write_bytecode = True
from protocol_machine import STAGES, STALE, Machine, check, outcome, run  # noqa: E402


class Form(NamedTuple):
    name: str
    overlapped: bool  # overlapped_columns.cuh instead of columns.cuh
    halves: int  # of head_dim, for dQ
    row_stages: int
    value_stages: int
    word_slots: int = 8


class Word(NamedTuple):
    number: int
    tile: Optional[int]  # None: no more work
    block: int
    first: bool
    last: bool


PLAIN, OVERLAPPED = FORMS = Form("head_dim 128", False, 2, 3, 1), Form("head_dim 64, overlapped", True, 1, 5, 2)

# Wrong protocols, and in which forms one may fall for them. Of the releases only those stand here that something rests
# on: with two V buffers, V of a block waits for the work slot of the block before last.
K_EARLY = "K released after the first tile"
SLOT_EARLY = "work slot released with the first tile"
DS_NOT_FREE = "no wait for a free dS buffer"
V_EARLY = "V released before dP was read"
Q_EARLY = "Q released before dK was read"
DS_EARLY = "dS published before it is stored"
NO_FENCE = "dS published without the fence"
DOUT_EARLY = "dO loaded before Q's buffer is free, which stands for dO's"
DOUT_UNCOUNTED = "full_q expects Q and its statistics, not dO, which lands on it too"
END_EARLY = "the end told before its buffer of Q is free"
END_UNREAD = "the end told to dQ before its buffer of dS is free"
FEW_WORDS = "one word slot fewer than row stages + 2"
DS_LATE = "dS published after the wait for the tile after the next"
SLOT_LATE = "work slot released after the wait for the next tile"
SLOT_UNREAD = "work slot released before the place was read"
WRITE_LATE = "dV and dK written after the next block's first product"
END_PLACE = "the last block written to the end word's place"
NO_LAST_WRITE = "the last block not written"
VALUE_PARITY = "one V buffer's parity with two"
WRONG = {
    **dict.fromkeys([K_EARLY, SLOT_EARLY, DS_NOT_FREE, Q_EARLY, DS_EARLY, NO_FENCE, DOUT_EARLY, END_EARLY, END_UNREAD,
                     FEW_WORDS, SLOT_UNREAD], FORMS),
    V_EARLY: [PLAIN],
    **dict.fromkeys([DOUT_UNCOUNTED, DS_LATE, SLOT_LATE, WRITE_LATE, END_PLACE, NO_LAST_WRITE, VALUE_PARITY],
                    [OVERLAPPED]),
}


class Model(Machine):
    def __init__(self, seed, form, wrong=None):
        slots = form.row_stages + 1 if wrong == FEW_WORDS else form.word_slots
        super().__init__(random.Random(seed), form.row_stages, form.value_stages, slots)
        self.form, self.wrong = form, wrong
        # Among them as many as there are buffers of Q: a loader at the end that has never waited for one.
        sizes = [self.random.choice([1, 1, 2, 3, 4, 5, 7]) for _ in range(self.random.randint(0, 7))]
        self.blocks = [range(sum(sizes[:n]), sum(sizes[:n + 1])) for n in range(len(sizes))]  # tiles of each
        self.tiles = sum(sizes)
        self.sums = [[], []]  # of each column warpgroup: tiles whose products dV and dK hold, or will when they land
        self.products = [[], []]  # of each, overlapped: what its dV, dK and dP in flight read
        self.written = []

    # scheduler.cuh
    def scheduler(self):
        for drawn in range(len(self.blocks) + 1):
            slot = drawn % STAGES
            yield from self.wait_empty("work", slot, drawn // STAGES)
            self.work[slot] = drawn if drawn < len(self.blocks) else None
            self.full["work"][slot].arrive()
            yield

    # loader.cuh
    def loader(self):
        rows = self.form.row_stages
        for block in range(len(self.blocks) + 1):
            yield from self.wait_full("work", block % STAGES, block // STAGES)
            if self.work[block % STAGES] is None:
                break
            for tile in self.blocks[block]:
                yield from self.load_tile(tile, block)
        if self.wrong != END_EARLY:
            yield from self.wait_empty("q", self.tiles % rows, self.tiles // rows)
        self.post(Word(self.tiles, None, 0, False, False))
        self.full["q"][self.tiles % rows].arrive()

    def load_tile(self, tile, block):
        rows, values = self.form.row_stages, self.form.value_stages
        stage, lap, tiles = tile % rows, tile // rows, self.blocks[block]
        if self.wrong == DOUT_EARLY:
            self.issue("o", stage, tile, self.dout_barrier(stage))
            yield
        yield from self.wait_empty("q", stage, lap)
        self.check_slot(block)
        self.post(Word(tile, tile, block, tile == tiles[0], tile == tiles[-1]))
        self.full["q"][stage].arrive(copies=2 if self.form.overlapped and self.wrong != DOUT_UNCOUNTED else 1)
        yield
        if tile == tiles[0]:
            yield from self.wait_empty("k", block % STAGES, block // STAGES)
            self.check_slot(block)
            yield from self.copy("k", block % STAGES, block)
        self.check_slot(block)
        self.issue("q", stage, tile, self.full["q"][stage])
        yield
        if not self.form.overlapped:
            self.full["o"][stage].arrive(copies=1)
        if self.wrong != DOUT_EARLY:
            self.issue("o", stage, tile, self.dout_barrier(stage))
            yield
        if tile == tiles[0]:
            yield from self.wait_empty("v", block % values, block // values)
            self.check_slot(block)
            yield from self.copy("v", block % values, block)

    def dout_barrier(self, stage):
        return self.full["q" if self.form.overlapped else "o"][stage]

    def check_slot(self, block):
        check(self.work[block % STAGES] == block, "the slot has another block")

    # columns.cuh: what both forms share
    def wait_key(self, word):
        yield from self.wait_full("k", word.block % STAGES, word.block // STAGES)

    def wait_dout(self, word):
        if not self.form.overlapped:  # or it has landed with Q
            yield from self.wait_full("o", word.tile % self.form.row_stages, word.tile // self.form.row_stages)
        if word.first:
            laps = 1 if self.wrong == VALUE_PARITY else self.form.value_stages
            yield from self.wait_full("v", word.block % self.form.value_stages, word.block // laps)

    def next_word(self, group, number):
        yield from self.wait_full("q", number % self.form.row_stages, number // self.form.row_stages)
        return self.read_word(group, number)

    def load_stats(self, word):
        held = self.data["q"][word.number % self.form.row_stages]
        check(word.tile is None or held == word.tile, "statistics of", held, "instead of", word.tile)

    def scores_reads(self, word):
        stage = word.number % self.form.row_stages
        if word.tile is None:
            return [("k", 0, STALE), ("q", stage, STALE)]
        return [("k", word.block % STAGES, word.block), ("q", stage, word.tile)]

    def dp_reads(self, word):
        stage = word.number % self.form.row_stages
        if word.tile is None:
            return [("v", 0, STALE), ("o", stage, STALE)]
        return [("v", word.block % self.form.value_stages, word.block), ("o", stage, word.tile)]

    def release_q(self, tile):
        self.empty["q"][tile % self.form.row_stages].arrive(4)

    def accumulate(self, group, word):
        self.sums[group] = ([] if word.first else self.sums[group]) + [word.tile]

    def hand_over_ds(self, group, tile, publish):
        """store_ds, and, with `publish`, publish_ds."""
        if self.wrong != DS_NOT_FREE:
            yield from self.wait_empty("ds", tile % STAGES, tile // STAGES)
        if self.wrong == DS_EARLY:
            self.publish_ds(group, tile)
            yield
        check(("ds", tile % STAGES) not in self.readers, "dS overwritten while it is read")
        self.ds[tile % STAGES][group] = tile if self.wrong == DS_EARLY else ("unfenced", tile)
        yield
        if publish and self.wrong != DS_EARLY:
            self.publish_ds(group, tile)
            yield

    def publish_ds(self, group, tile):
        if self.ds[tile % STAGES][group] == ("unfenced", tile) and self.wrong != NO_FENCE:
            self.ds[tile % STAGES][group] = tile
        self.full["ds"][tile % STAGES].arrive(4)

    def take_block(self, block):
        """Reads where the complete block belongs and frees its slot."""
        if self.wrong == SLOT_UNREAD:
            self.empty["work"][block % STAGES].arrive(4)
            yield
        self.check_slot(block)
        yield
        if self.wrong not in (SLOT_UNREAD, SLOT_EARLY):
            self.empty["work"][block % STAGES].arrive(4)

    def write_block(self, group, block):
        check(self.sums[group] == list(self.blocks[block]), "dV and dK of the block are sums over", *self.sums[group])
        self.written.append((block, group))

    def release_slot_early(self, word):
        if word.first and self.wrong == SLOT_EARLY:
            self.empty["work"][word.block % STAGES].arrive(4)

    def finish(self, group, tile):
        if self.wrong != END_UNREAD:
            yield from self.wait_empty("ds", tile % STAGES, tile // STAGES)
        self.full["ds"][tile % STAGES].arrive(4)

    # columns.cuh
    def columns(self, group):
        word = yield from self.next_word(group, 0)
        tile = 0
        if word.tile is not None:
            self.load_stats(word)
            yield from self.wait_key(word)
            reads = self.begin_read(self.scores_reads(word))
            yield
            self.end_read(reads)
        while word.tile is not None:
            word = yield from self.step(group, word)
            tile += 1
        yield from self.finish(group, tile)

    def step(self, group, word):
        tile = word.tile
        self.load_stats(word)
        yield
        yield from self.wait_dout(word)
        reads = self.begin_read(self.dp_reads(word))
        self.accumulate(group, word)
        if word.last and self.wrong == V_EARLY:
            self.empty["v"][word.block % self.form.value_stages].arrive(4)
        yield
        self.end_read(reads)
        if word.last and self.wrong != V_EARLY:
            self.empty["v"][word.block % self.form.value_stages].arrive(4)
        yield
        following = yield from self.next_word(group, tile + 1)
        self.load_stats(following)
        if following.first:
            yield from self.wait_key(following)
        reads = self.begin_read(self.scores_reads(following) + [("q", tile % self.form.row_stages, tile)])
        if self.wrong == Q_EARLY:
            self.release_q(tile)
        yield
        yield from self.hand_over_ds(group, tile, publish=True)
        self.end_read(reads)
        if self.wrong != Q_EARLY:
            self.release_q(tile)
        self.release_slot_early(word)
        yield
        if word.last:
            yield from self.take_block(word.block)
            self.write_block(group, word.block)
        yield
        return following

    # overlapped_columns.cuh
    def overlapped_columns(self, group):
        word = yield from self.next_word(group, 0)
        tile, previous = 0, None
        if word.tile is not None:
            self.load_stats(word)
            yield from self.wait_key(word)
            yield from self.wait_dout(word)
            reads = self.begin_read(self.scores_reads(word) + self.dp_reads(word))
            yield
            self.end_read(reads)
        while word.tile is not None:
            previous = word
            word = yield from self.overlapped_step(group, word)
            tile += 1
        self.end_read(self.products[group])
        yield
        if previous is not None:
            if self.wrong == DS_LATE:
                self.publish_ds(group, tile - 1)
            if self.wrong == END_PLACE:
                check(self.work[word.block % STAGES] == previous.block, "the slot has another block")
            yield from self.take_block(previous.block)
            if self.wrong != NO_LAST_WRITE:
                self.write_block(group, previous.block)
        yield from self.finish(group, tile)

    def overlapped_step(self, group, word):
        tile, stage = word.tile, word.tile % self.form.row_stages
        yield
        complete = word.first and tile != 0  # the block before this one
        if complete and self.wrong != SLOT_LATE:
            yield from self.take_block(word.block - 1)
        following = yield from self.next_word(group, tile + 1)
        if tile != 0 and self.wrong == DS_LATE:
            self.publish_ds(group, tile - 1)
        self.end_read(self.products[group])
        yield
        if tile != 0:
            if self.wrong != Q_EARLY:
                self.release_q(tile - 1)
            yield
        if word.last:
            self.empty["v"][word.block % self.form.value_stages].arrive(4)
        yield
        self.load_stats(following)
        yield from self.hand_over_ds(group, tile, publish=False)
        if following.first:
            yield from self.wait_key(following)
        scores = self.begin_read(self.scores_reads(following))
        yield
        if complete and self.wrong == SLOT_LATE:
            yield from self.take_block(word.block - 1)
        if complete and self.wrong != WRITE_LATE:
            self.write_block(group, word.block - 1)
        yield
        if following.tile is not None:
            yield from self.wait_dout(following)
        self.products[group] = self.begin_read([("o", stage, tile), ("q", stage, tile)] + self.dp_reads(following))
        self.accumulate(group, word)
        if complete and self.wrong == WRITE_LATE:
            self.write_block(group, word.block - 1)
        if self.wrong == Q_EARLY:
            self.release_q(tile)
        yield
        if self.wrong not in (DS_LATE, DS_EARLY):
            self.publish_ds(group, tile)
            yield
        self.end_read(scores)
        self.release_slot_early(word)
        return following

    # dq.cuh
    def dq(self):
        for tile in range(self.tiles + 1):
            stage = tile % STAGES
            yield from self.wait_full("ds", stage, tile // STAGES)
            yield
            word = self.read_word("dq", tile)
            if word.tile is None:
                return
            check(self.ds[stage] == [tile, tile], "dS is not that of the tile, or not visible yet")
            for half in range(self.form.halves):
                reads = self.begin_read([("k", word.block % STAGES, word.block)])
                self.readers.append(("ds", stage))
                yield
                self.end_read(reads)
                self.readers.remove(("ds", stage))
                check(self.ds[stage] == [tile, tile], "dS changed while it was read")
                if half + 1 == self.form.halves:
                    self.empty["ds"][stage].arrive(4)
                    if word.first if self.wrong == K_EARLY else word.last:
                        self.empty["k"][word.block % STAGES].arrive(4)
                yield

    def check_schedule(self):
        columns = self.overlapped_columns if self.form.overlapped else self.columns
        roles = {"scheduler": self.scheduler(), "loader": self.loader(), "columns 0": columns(0),
                 "columns 1": columns(1), "dq": self.dq()}
        run(self.random, roles, self.flying)
        check(sorted(self.written) == [(b, g) for b in range(len(self.blocks)) for g in range(2)], "a block is missing")


def main(arguments):
    schedules = int(arguments[0]) if arguments else 60
    bad = False
    for form in FORMS:
        for slots in (form.word_slots, form.row_stages + 2):  # as it is, and as few as shared_memory.hpp allows
            found = outcome(schedules, lambda seed: Model(seed, form._replace(word_slots=slots)))
            bad |= found is not None
            print(f"{form.name}, {slots} word slots: {found or f'{schedules} schedules end well'}")
        for wrong in (wrong for wrong, forms in WRONG.items() if form in forms):
            found = outcome(10 * schedules, lambda seed: Model(seed, form, wrong))
            bad |= found is None
            print(f"  {wrong}: {'found out, ' + found if found else 'NOT FOUND OUT'}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
