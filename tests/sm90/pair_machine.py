"""One CTA of a pair of the backward, role by role, and the ways to get its protocol wrong (backward_pair_model.py)."""
import sys
from itertools import count
from typing import NamedTuple, Optional

sys.dont_write_bytecode = True
from protocol_machine import IN_FLIGHT, STAGES, STALE, Machine, check  # noqa: E402

ROW_STAGES, DOUT_STAGES, WORD_SLOTS = 3, 2, 8


class Word(NamedTuple):
    number: int  # of the tile in the CTA's life
    tile: Optional[int]  # which one; None: no more work
    block: int
    first: bool
    last: bool


Q_OWN = "Q released to its own CTA only"
DOUT_OWN = "dO released to its own CTA only"
DS_OWN = "dS released by its own CTA only"
PEER_DS_EARLY = "the other CTA's dS released before it has landed"
DS_LATE = "dS published after the wait for K at a block border"
K_EARLY = "K released before the product with the other CTA's"
K_NOT_FREE = "no wait for a free K buffer"
PEER_K_NOT_FREE = "the other CTA's K loaded before the wait for its free buffer"
K_FIRST = "K loaded before Q of its first tile"
SLOT_OWN = "work slots released by the columns of CTA 0 only"
SLOT_UNREAD = "work slot released before the place was read"
END_OWN = "the end told to CTA 0 only"
FRONTS = "each CTA reads the front for itself"
COPY_EARLY = "dS sent before it is published"
NOT_LANDED = "no wait for the other CTA's dS"
DS_NOT_FREE = "no wait for a free dS buffer"
NO_FENCE = "dS published without the fence"
HALF_BYTES = "full_q expects the bytes of one half only"
Q_EARLY = "Q released before dK was read"
FEW_WORDS = "one word slot fewer than row stages + 2"
LEAVES = "no cluster barrier at the end"
# Not among them: the other CTA's dS may be released as soon as it has landed, as its next one in the same buffer comes
# after a copy that this CTA starts later than this product.
WRONG = [Q_OWN, DOUT_OWN, DS_OWN, PEER_DS_EARLY, DS_LATE, K_EARLY, K_NOT_FREE, PEER_K_NOT_FREE, K_FIRST, SLOT_OWN,
         SLOT_UNREAD, END_OWN, FRONTS, COPY_EARLY, NOT_LANDED, DS_NOT_FREE, NO_FENCE, HALF_BYTES, Q_EARLY, FEW_WORDS,
         LEAVES]
STALLS = [DS_LATE, K_FIRST, END_OWN]  # these are found out by that alone


class Cta(Machine):
    def __init__(self, pair, rank, word_slots):
        super().__init__(pair.random, ROW_STAGES, 1, word_slots, k=1, o=DOUT_STAGES, landed=STAGES)
        self.pair, self.rank, self.wrong, self.flying = pair, rank, pair.wrong, pair.flying
        self.word_readers.add("sender")
        rows = dict.fromkeys(["q0", "q1", "statistics"], ROW_STAGES)  # halves of head_dim
        sizes = rows | dict.fromkeys(["o0", "o1"], DOUT_STAGES) | {"k": 1, "v": 1, "peer k": 1, "peer ds": STAGES}
        self.data = {name: [None] * size for name, size in sizes.items()}
        self.sums = [[], []]  # of each column warpgroup: tiles whose products dV and dK hold
        self.written, self.dq_sums, self.left = [], [], False
        # kernel.cuh: what the other CTA reads too, its readers release.
        for name, wrong in (("q", Q_OWN), ("o", DOUT_OWN), ("work", SLOT_OWN), ("ds", DS_OWN)):
            for barrier in self.empty[name] if wrong != self.wrong else []:
                barrier.count = barrier.pending = 2 * barrier.count

    @property
    def other(self):
        return self.pair.ctas[1 - self.rank]

    def land(self, name, index, what, barrier):
        check(not self.left, name, "lands in a CTA that has left")
        super().land(name, index, what, barrier)

    def tell(self, role, cta, name, index, arrivals):
        """mbarrier_arrive_remote on `empty`."""
        self.pair.send((self.rank, role), cta, lambda: cta.empty[name][index].arrive(arrivals))

    def fill(self, slot, work):
        """What the scheduler of CTA 0 does to this one."""
        self.work[slot] = work
        self.full["work"][slot].arrive()

    # loader.cuh
    def loader(self):
        number = 0
        for block in count():
            yield from self.wait_full("work", block % STAGES, block // STAGES)
            check(self.work[block % STAGES] != IN_FLIGHT, "the slot is being filled")
            if self.work[block % STAGES] is None:
                break
            front = self.random.randrange(99) if self.wrong == FRONTS else self.work[block % STAGES][1]
            tiles = self.pair.sweep(block, front)
            for tile in tiles:
                yield from self.load_tile(Word(number, tile, block, tile == tiles[0], tile == tiles[-1]))
                number += 1
        yield from self.wait_empty("q", number % ROW_STAGES, number // ROW_STAGES)
        self.post(Word(number, None, 0, False, False))
        self.full["q"][number % ROW_STAGES].arrive()
        yield from self.pair.leave((self.rank, "loader"))

    def load_tile(self, word):
        stage, dout_stage = word.number % ROW_STAGES, word.number % DOUT_STAGES
        yield from self.wait_empty("q", stage, word.number // ROW_STAGES)
        self.check_slot(word.block)
        self.post(word)
        self.full["q"][stage].arrive(copies=2 if self.wrong == HALF_BYTES else 3)
        yield
        self.issue("statistics", stage, word.tile, self.full["q"][stage])
        yield
        if word.first and self.wrong == K_FIRST:
            yield from self.load_key(word.block)
        yield from self.copy_rows("q", stage, word)
        yield from self.wait_empty("o", dout_stage, word.number // DOUT_STAGES)
        self.full["o"][dout_stage].arrive(copies=2)
        yield
        yield from self.copy_rows("o", dout_stage, word)
        if word.first:
            if self.wrong != K_FIRST:
                yield from self.load_key(word.block)
            yield from self.load_value(word.block)

    def copy_rows(self, name, stage, word):
        """This CTA's half, into both."""
        self.check_slot(word.block)
        for cta in self.pair.ctas:
            cta.issue(f"{name}{self.rank}", stage, word.tile, cta.full[name][stage])
        yield

    def load_key(self, block):
        for name in ["peer k", "k"] if self.wrong == PEER_K_NOT_FREE else ["k", "peer k"]:
            if name == "k":
                if self.wrong != K_NOT_FREE:
                    yield from self.wait_empty("k", 0, block)
                self.full["k"][0].arrive(copies=2)
                yield
            self.check_slot(block)
            self.issue(name, 0, block, self.full["k"][0])
            yield

    def load_value(self, block):
        yield from self.wait_empty("v", 0, block)
        self.check_slot(block)
        yield from self.copy("v", 0, block)

    def check_slot(self, block):
        slot = self.work[block % STAGES]
        check(slot not in (None, IN_FLIGHT) and slot[0] == block, "the slot has another block")

    # columns.cuh
    def columns(self, group):
        word = yield from self.next_word(group, 0)
        number = 0
        if word.tile is not None:
            self.load_stats(word)
            yield from self.wait_full("k", 0, 0)
            reads = self.begin_read(self.scores_reads(word))
            yield
            self.end_read(reads)
        while word.tile is not None:
            word = yield from self.step(group, word)
            number += 1
        yield from self.wait_empty("ds", number % STAGES, number // STAGES)
        self.full["ds"][number % STAGES].arrive(4)
        yield from self.pair.leave((self.rank, group))

    def step(self, group, word):
        tile, stage, dout_stage = word.tile, word.number % ROW_STAGES, word.number % DOUT_STAGES
        self.load_stats(word)
        yield
        yield from self.wait_full("o", dout_stage, word.number // DOUT_STAGES)
        if word.first:
            yield from self.wait_full("v", 0, word.block)
        reads = self.begin_read([("v", 0, word.block), ("o0", dout_stage, tile), ("o1", dout_stage, tile)])
        self.sums[group] = ([] if word.first else self.sums[group]) + [tile]
        yield
        self.end_read(reads)
        yield from self.release_everywhere(group, "o", dout_stage, DOUT_OWN)
        if word.last:
            self.empty["v"][0].arrive(4)
        following = yield from self.next_word(group, word.number + 1)
        self.load_stats(following)
        yield from self.store_ds(group, word)
        key_gradient = [("q0", stage, tile), ("q1", stage, tile)]
        if following.first:
            if self.wrong != DS_LATE:
                self.publish_ds(group, word)
            yield from self.read_q(group, stage, key_gradient)
            yield from self.write_block(group, word)
            yield from self.wait_full("k", 0, following.block)
            reads = self.begin_read(self.scores_reads(following))
            if self.wrong == DS_LATE:
                self.publish_ds(group, word)
            yield
            self.end_read(reads)
        else:
            publish = lambda: self.publish_ds(group, word)
            yield from self.read_q(group, stage, key_gradient + self.scores_reads(following), publish)
            if word.last:
                yield from self.write_block(group, word)
        yield
        return following

    def read_q(self, group, stage, reads, publish=lambda: None):
        """dK of a tile, perhaps with the next one's scores; then the tile's Q is free."""
        reads = self.begin_read(reads)
        if self.wrong == Q_EARLY:
            yield from self.release_everywhere(group, "q", stage, Q_OWN)
        yield
        publish()
        yield
        self.end_read(reads)
        if self.wrong != Q_EARLY:
            yield from self.release_everywhere(group, "q", stage, Q_OWN)
        yield

    def write_block(self, group, word):
        yield from self.take_block(group, word.block)
        tiles = list(self.pair.blocks[word.block])
        check(sorted(self.sums[group]) == tiles, "dV and dK of the block are sums over", *self.sums[group])
        self.written.append((word.block, group))

    def next_word(self, group, number):
        yield from self.wait_full("q", number % ROW_STAGES, number // ROW_STAGES)
        return self.read_word(group, number)

    def load_stats(self, word):
        held = self.data["statistics"][word.number % ROW_STAGES]
        check(word.tile is None or held == word.tile, "statistics of", held, "instead of", word.tile)

    def scores_reads(self, word):
        stage = word.number % ROW_STAGES
        what, block = (STALE, STALE) if word.tile is None else (word.tile, word.block)
        return [("k", 0, block), ("q0", stage, what), ("q1", stage, what)]

    def release_everywhere(self, group, name, stage, own_only):
        self.empty[name][stage].arrive(4)
        if self.wrong != own_only:
            self.tell(group, self.other, name, stage, 4)
        yield

    def store_ds(self, group, word):
        stage = word.number % STAGES
        if self.wrong != DS_NOT_FREE:
            yield from self.wait_empty("ds", stage, word.number // STAGES)
        check(("ds", stage) not in self.readers, "dS overwritten while it is read or sent")
        self.ds[stage][group] = ("unfenced", word.tile)
        yield

    def publish_ds(self, group, word):
        if self.wrong != NO_FENCE:
            self.ds[word.number % STAGES][group] = word.tile
        self.full["ds"][word.number % STAGES].arrive(4)

    def take_block(self, group, block):
        """Reads where the complete block belongs and frees its slot, of which CTA 0 has the barrier."""
        release = lambda: self.tell(group, self.pair.ctas[0], "work", block % STAGES, 4)
        heard = self.rank == 0 or self.wrong != SLOT_OWN
        if heard and self.wrong == SLOT_UNREAD:
            release()
            yield
        self.check_slot(block)
        yield
        if heard and self.wrong != SLOT_UNREAD:
            release()

    # exchange.cuh
    def sender(self):
        for number in count():
            stage = number % STAGES
            if self.wrong == COPY_EARLY and number < self.pair.tiles:
                self.send_ds(stage)
                yield
            yield from self.wait_full("ds", stage, number // STAGES)
            yield
            if self.read_word("sender", number).tile is None:
                break
            if self.wrong != COPY_EARLY:
                self.send_ds(stage)
                yield
        yield from self.pair.leave((self.rank, "sender"))

    # dq.cuh
    def dq(self):
        for number in count():
            stage = number % STAGES
            yield from self.wait_full("ds", stage, number // STAGES)
            yield
            word = self.read_word("dq", number)
            if word.tile is None:
                break
            yield from self.add_pair(word, stage)
        yield from self.pair.leave((self.rank, "dq"))

    def send_ds(self, stage):
        self.full["landed"][stage].arrive(copies=1)  # the other CTA's
        other, barrier, sent = self.other, self.other.full["landed"][stage], list(self.ds[stage])
        check(("peer ds", stage) not in other.readers, "peer ds overwritten while it is read")
        other.data["peer ds"][stage] = IN_FLIGHT
        self.readers.append(("ds", stage))

        def landing():
            check(not self.left, "dS is sent from a CTA that has left")
            self.readers.remove(("ds", stage))
            whole = sent == self.ds[stage] and sent[0] == sent[1]
            other.land("peer ds", stage, sent[0] if whole else "torn dS", barrier)

        self.flying.append(landing)

    def add_pair(self, word, stage):
        check(self.ds[stage] == [word.tile] * 2, "dS is not that of the tile, or not visible yet")
        reads = self.begin_read([("k", 0, word.block)])
        self.readers.append(("ds", stage))
        if self.wrong == PEER_DS_EARLY:
            self.tell("dq", self.other, "ds", stage, 4)
        yield
        if self.wrong != NOT_LANDED:
            yield from self.wait_full("landed", stage, word.number // STAGES)
        if word.last and self.wrong == K_EARLY:
            self.empty["k"][0].arrive(4)
            yield
        reads += self.begin_read([("peer k", 0, word.block), ("peer ds", stage, word.tile)])
        yield
        self.end_read(reads)
        self.readers.remove(("ds", stage))
        check(self.ds[stage] == [word.tile] * 2, "dS changed while it was read")
        if self.wrong not in (DS_OWN, PEER_DS_EARLY):
            self.tell("dq", self.other, "ds", stage, 4)
        yield
        self.empty["ds"][stage].arrive(4)
        if word.last and self.wrong != K_EARLY:
            self.empty["k"][0].arrive(4)
        for _ in range(4):  # the reductions
            yield
        self.dq_sums.append(word.tile)
