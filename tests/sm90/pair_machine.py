"""Two CTAs of a pair of the backward: what they are in either column form (backward_pair_model.py has those), and how a
schedule of them runs and ends."""
import random
from itertools import count
from typing import NamedTuple, Optional

import pair_faults as fault
from protocol_machine import IN_FLIGHT, STAGES, STALE, Machine, check, run

WORD_SLOTS = 8


class Form(NamedTuple):
    name: str
    row_stages: int
    dout_stages: int
    key_stages: int
    value_stages: int
    alternating: bool  # each CTA has dQ of every second tile

    @property
    def one_ring(self):
        """Q's barriers stand for dO's."""
        return self.dout_stages == self.row_stages


class Word(NamedTuple):
    number: int  # of the tile in the CTA's life
    tile: Optional[int]  # which one; None: no more work
    block: int
    first: bool
    last: bool

class Cta(Machine):
    """Subclasses have the columns: `columns(group)`."""

    def __init__(self, pair, rank, word_slots):
        form = pair.form
        super().__init__(pair.random, form.row_stages, form.value_stages, word_slots, k=form.key_stages,
                         o=form.dout_stages, landed=STAGES)
        self.pair, self.rank, self.wrong, self.flying, self.form = pair, rank, pair.wrong, pair.flying, form
        self.word_readers.add("sender")
        rows = dict.fromkeys(["q0", "q1", "statistics"], form.row_stages)  # halves, of head_dim or of the rows
        sizes = rows | dict.fromkeys(["o0", "o1"], form.dout_stages) | dict.fromkeys(["k", "peer k"], form.key_stages)
        sizes |= {"v": form.value_stages, "peer ds": 1 if form.alternating else STAGES}
        self.data = {name: [None] * size for name, size in sizes.items()}
        self.sums = [[], []]  # of each column warpgroup: tiles whose products dV and dK hold
        self.written, self.dq_sums, self.left = [], [], False
        # kernel.cuh: what the other CTA reads too, its readers release.
        for name, wrong in (("q", fault.Q_OWN), ("o", fault.DOUT_OWN), ("work", fault.SLOT_OWN), ("ds", fault.DS_OWN)):
            for stage, barrier in enumerate(self.empty[name]) if wrong != self.wrong else []:
                own = name == "ds" and form.alternating and stage == rank  # what this CTA does not send
                if (not own or self.wrong == fault.OWN_TWICE) and (name != "ds" or self.wrong != fault.NOT_PASSED):
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
            front = self.random.randrange(99) if self.wrong == fault.FRONTS else self.work[block % STAGES][1]
            tiles = self.pair.sweep(block, front)
            for tile in tiles:
                yield from self.load_tile(Word(number, tile, block, tile == tiles[0], tile == tiles[-1]))
                number += 1
        if self.wrong != fault.END_EARLY:
            yield from self.wait_ring(self.wait_empty, "q", self.form.row_stages, number)
        self.post(Word(number, None, 0, False, False))
        self.full["q"][number % self.form.row_stages].arrive()
        yield from self.pair.leave((self.rank, "loader"))

    @staticmethod
    def wait_ring(wait, name, stages, number):
        """For the `number`th use of a ring's buffers."""
        yield from wait(name, number % stages, number // stages)

    def load_tile(self, word):
        stage = word.number % self.form.row_stages
        load_statistics = lambda: self.issue("statistics", stage, word.tile, self.full["q"][stage])
        if self.wrong == fault.STATISTICS_EARLY:
            load_statistics()
            yield
        if self.wrong == fault.DOUT_EARLY:
            yield from self.load_dout(word)
        yield from self.wait_ring(self.wait_empty, "q", self.form.row_stages, word.number)
        self.check_slot(word.block)
        self.post(word)
        dout_too = self.form.one_ring and self.wrong != fault.DOUT_UNCOUNTED
        self.full["q"][stage].arrive(copies=(2 if self.wrong == fault.HALF_BYTES else 3) + (2 if dout_too else 0))
        yield
        if self.wrong != fault.STATISTICS_EARLY:
            load_statistics()
            yield
        if word.first and self.wrong == fault.K_FIRST:
            yield from self.load_key(word.block)
        yield from self.copy_rows("q", stage, word)
        if self.wrong != fault.DOUT_EARLY:
            if not self.form.one_ring:  # or Q's release stands for both
                yield from self.wait_ring(self.wait_empty, "o", self.form.dout_stages, word.number)
            yield from self.load_dout(word)
        if word.first:
            if self.wrong != fault.K_FIRST:
                yield from self.load_key(word.block)
            yield from self.load_value(word.block)

    def load_dout(self, word):
        stage = word.number % self.form.dout_stages
        if not self.form.one_ring:  # or it lands on Q's barrier
            self.full["o"][stage].arrive(copies=2)
            yield
        yield from self.copy_rows("o", stage, word)

    def copy_rows(self, name, stage, word):
        """This CTA's half, into both."""
        self.check_slot(word.block)
        for cta in self.pair.ctas:
            cta.issue(f"{name}{self.rank}", stage, word.tile, cta.full["q" if self.form.one_ring else name][stage])
        yield

    def load_key(self, block):
        buffer = block % self.form.key_stages
        for name in ["peer k", "k"] if self.wrong == fault.PEER_K_NOT_FREE else ["k", "peer k"]:
            if name == "k":
                if self.wrong != fault.K_NOT_FREE:
                    yield from self.wait_ring(self.wait_empty, "k", self.form.key_stages, block)
                self.full["k"][buffer].arrive(copies=1 if self.wrong == fault.KEY_BYTES else 2)
                yield
            self.check_slot(block)
            self.issue(name, buffer, block, self.full["k"][buffer])
            yield

    def load_value(self, block):
        yield from self.wait_ring(self.wait_empty, "v", self.form.value_stages, block)
        self.check_slot(block)
        yield from self.copy("v", block % self.form.value_stages, block)

    def check_slot(self, block):
        slot = self.work[block % STAGES]
        check(slot not in (None, IN_FLIGHT) and slot[0] == block, "the slot has another block")

    # What both forms of the columns share
    def next_word(self, group, number):
        yield from self.wait_ring(self.wait_full, "q", self.form.row_stages, number)
        return self.read_word(group, number)

    def load_stats(self, word):
        held = self.data["statistics"][word.number % self.form.row_stages]
        check(word.tile is None or held == word.tile, "statistics of", held, "instead of", word.tile)

    def scores_reads(self, word):
        stage = word.number % self.form.row_stages
        if word.tile is None:  # of the first buffer, as the end's flags say
            return [("k", 0, STALE), ("q0", stage, STALE), ("q1", stage, STALE)]
        buffer = word.block % self.form.key_stages
        return [("k", buffer, word.block), ("q0", stage, word.tile), ("q1", stage, word.tile)]

    def dp_reads(self, word):
        stage = word.number % self.form.dout_stages
        if word.tile is None:
            return [("v", 0, STALE), ("o0", stage, STALE), ("o1", stage, STALE)]
        buffer = word.block % self.form.value_stages
        return [("v", buffer, word.block), ("o0", stage, word.tile), ("o1", stage, word.tile)]

    def wait_dout(self, word):
        if not self.form.one_ring:  # or it has landed with Q
            yield from self.wait_ring(self.wait_full, "o", self.form.dout_stages, word.number)
        if word.first:
            laps = 1 if self.wrong == fault.VALUE_PARITY else self.form.value_stages
            yield from self.wait_full("v", word.block % self.form.value_stages, word.block // laps)

    def accumulate(self, group, word):
        self.sums[group] = ([] if word.first else self.sums[group]) + [word.tile]

    def write_block(self, group, block):
        tiles = list(self.pair.blocks[block])
        check(sorted(self.sums[group]) == tiles, "dV and dK of the block are sums over", *self.sums[group])
        self.written.append((block, group))

    def wait_key(self, word):
        yield from self.wait_ring(self.wait_full, "k", self.form.key_stages, word.block)

    def q_reads(self, word):
        stage = word.number % self.form.row_stages
        return [("q0", stage, word.tile), ("q1", stage, word.tile)]

    def finish(self, group, number):
        """Lets the dQ warpgroup and the sender read the end word."""
        if self.wrong != fault.END_UNREAD:
            yield from self.wait_empty("ds", number % STAGES, number // STAGES)
        self.full["ds"][number % STAGES].arrive(4)
        yield from self.pair.leave((self.rank, group))

    def release_everywhere(self, group, name, word, own_only):
        stage = word.number % (self.form.row_stages if name == "q" else self.form.dout_stages)
        self.empty[name][stage].arrive(4)
        if self.wrong != own_only:
            self.tell(group, self.other, name, stage, 4)
        yield

    def store_ds(self, group, word):
        stage = word.number % STAGES
        if self.wrong != fault.DS_NOT_FREE:
            yield from self.wait_empty("ds", stage, word.number // STAGES)
        check(("ds", stage) not in self.readers, "dS overwritten while it is read or sent")
        self.ds[stage][group] = ("unfenced", word.tile)
        yield

    def publish_ds(self, group, word):
        if self.wrong != fault.NO_FENCE:
            self.ds[word.number % STAGES][group] = word.tile
        self.full["ds"][word.number % STAGES].arrive(4)

    def take_block(self, group, block):
        """Reads where the complete block belongs and frees its slot, of which CTA 0 has the barrier."""
        release = lambda: self.tell(group, self.pair.ctas[0], "work", block % STAGES, 4)
        heard = self.rank == 0 or self.wrong != fault.SLOT_OWN
        if heard and self.wrong == fault.SLOT_UNREAD:
            release()
            yield
        self.check_slot(block)
        yield
        if heard and self.wrong != fault.SLOT_UNREAD:
            release()

    # exchange.cuh
    def sender(self):
        for number in count():
            stage = number % STAGES
            if self.wrong == fault.COPY_EARLY and number < self.pair.tiles:
                self.send_ds(stage)
                yield
            yield from self.wait_full("ds", stage, number // STAGES)
            yield
            if self.read_word("sender", number).tile is None:
                break
            if self.wrong != fault.COPY_EARLY:
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
        if not self.form.alternating or stage == self.rank:
            self.full["landed"][stage].arrive(copies=1)  # the other CTA's
            if self.form.alternating:
                return
        other, barrier, sent = self.other, self.other.full["landed"][stage], list(self.ds[stage])
        peer_stage = stage % len(other.data["peer ds"])
        check(("peer ds", peer_stage) not in other.readers, "peer ds overwritten while it is read")
        other.data["peer ds"][peer_stage] = IN_FLIGHT
        self.readers.append(("ds", stage))

        def landing():
            check(not self.left, "dS is sent from a CTA that has left")
            self.readers.remove(("ds", stage))
            whole = sent == self.ds[stage] and sent[0] == sent[1]
            other.land("peer ds", peer_stage, sent[0] if whole else "torn dS", barrier)

        self.flying.append(landing)

    def add_pair(self, word, stage):
        buffer = word.block % self.form.key_stages
        if self.form.alternating and stage != self.rank:  # the other CTA's tile
            if self.wrong != fault.NOT_PASSED:
                self.empty["ds"][stage].arrive(4)
            if word.last and self.wrong != fault.K_KEPT:
                self.empty["k"][buffer].arrive(4)
            return
        check(self.ds[stage] == [word.tile] * 2, "dS is not that of the tile, or not visible yet")
        reads = self.begin_read([("k", buffer, word.block)])
        self.readers.append(("ds", stage))
        if self.wrong == fault.OWN_DS_EARLY:
            self.empty["ds"][stage].arrive(4)
        if self.wrong == fault.PEER_DS_EARLY:
            self.tell("dq", self.other, "ds", stage, 4)
        yield
        if self.wrong != fault.NOT_LANDED:
            yield from self.wait_full("landed", stage, word.number // STAGES)
        if word.last and self.wrong == fault.K_EARLY:
            self.empty["k"][buffer].arrive(4)
            yield
        if self.wrong == fault.PEER_DS_LANDED:
            self.tell("dq", self.other, "ds", stage, 4)
        reads += self.begin_read([("peer k", buffer, word.block),
                                  ("peer ds", stage % len(self.data["peer ds"]), word.tile)])
        yield
        self.end_read(reads)
        self.readers.remove(("ds", stage))
        check(self.ds[stage] == [word.tile] * 2, "dS changed while it was read")
        if self.wrong not in (fault.DS_OWN, fault.PEER_DS_EARLY, fault.PEER_DS_LANDED):
            self.tell("dq", self.other, "ds", stage, 4)
        yield
        if self.wrong != fault.OWN_DS_EARLY:
            self.empty["ds"][stage].arrive(4)
        if word.last and self.wrong != fault.K_EARLY:
            self.empty["k"][buffer].arrive(4)
        for _ in range(4):  # the reductions
            yield
        self.dq_sums.append(word.tile)


class Pair:
    """`cta`: a subclass of Cta that has the columns of `form`."""

    def __init__(self, seed, cta, form, wrong=None, word_slots=WORD_SLOTS):
        self.random, self.wrong, self.flying, self.form = random.Random(seed), wrong, [], form
        # Among them as many as there are buffers of Q: a loader at the end that has never waited for one.
        sizes = [self.random.choice([1, 1, 2, 3, 4, 5, 7]) for _ in range(self.random.randint(0, 7))]
        self.blocks = [range(sum(sizes[:n]), sum(sizes[:n + 1])) for n in range(len(sizes))]  # tiles of each
        self.tiles = sum(sizes)
        slots = form.row_stages + 1 if wrong == fault.FEW_WORDS else word_slots
        self.ctas = [cta(self, rank, slots) for rank in range(2)]
        self.undelivered, self.inside = {}, []

    def sweep(self, block, front):
        tiles = list(self.blocks[block])
        return tiles[front % len(tiles):] + tiles[:front % len(tiles)]

    def send(self, role, cta, effect):
        """Something that reaches `cta` at any time from now on."""

        def arrival():
            check(not cta.left, "something reaches a CTA that has left")
            self.undelivered[role] -= 1
            effect()

        self.undelivered[role] = self.undelivered.get(role, 0) + 1
        self.flying.append(arrival)

    def leave(self, role):
        """The cluster barrier at the end of kernel.cuh: releases what the thread has sent, waits for all others."""
        yield
        if self.wrong != fault.LEAVES:
            waiting = object()
            while self.undelivered.get(role, 0) != 0:
                yield waiting
        self.inside.remove(role)
        if self.wrong != fault.LEAVES:
            waiting = object()
            while self.inside:
                yield waiting
        else:
            self.ctas[role[0]].left = not any(rank == role[0] for rank, _ in self.inside)

    # scheduler.cuh, of CTA 0
    def scheduler(self):
        for drawn in range(len(self.blocks) + 1):
            slot = drawn % STAGES
            yield from self.ctas[0].wait_empty("work", slot, drawn // STAGES)
            work = (drawn, self.random.randrange(99)) if drawn < len(self.blocks) else None
            for cta in self.ctas[:1] if self.wrong == fault.END_OWN and work is None else self.ctas:
                cta.work[slot] = IN_FLIGHT
                self.send((0, "scheduler"), cta, lambda cta=cta, slot=slot, work=work: cta.fill(slot, work))
                yield
        yield from self.leave((0, "scheduler"))

    def check_schedule(self):
        roles = {(0, "scheduler"): self.scheduler()}
        for cta in self.ctas:
            roles |= {(cta.rank, "loader"): cta.loader(), (cta.rank, "sender"): cta.sender(),
                      (cta.rank, "dq"): cta.dq(), (cta.rank, 0): cta.columns(0), (cta.rank, 1): cta.columns(1)}
        self.inside = list(roles)
        run(self.random, roles, self.flying)
        check(not self.flying, "something is under way after the end")
        for cta in self.ctas:
            check(len(cta.written) == len(set(cta.written)) == 2 * len(self.blocks), "a block is missing")
        sums = [cta.dq_sums for cta in self.ctas]
        for tiles in [sums[0] + sums[1]] if self.form.alternating else sums:
            check(sorted(tiles) == list(range(self.tiles)), "dQ is the sum over", *tiles)
