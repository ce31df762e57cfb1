#!/usr/bin/env python3
"""A model of the barriers of the backward's pairs of CTAs, as backward_protocol_model.py is of single ones.

    backward_pair_model.py [SCHEDULES]

Two CTAs with barriers of their own: each loads one half of every tile of Q and dO (of head_dim or of the rows) into
both, the scheduler of CTA 0 fills the slots of both, and each sends the other one dS for the dQ that is computed there
(of one half of head_dim, or of every second tile). What goes to the other CTA (arrivals, words, copies) gets there at
any time after it was sent, and must not find the CTA gone. Every tile has to be the same one in both CTAs. Here are the
columns, in their two forms; the other roles are in pair_machine.py, the wrong protocols in pair_faults.py. What is a
role, what is not modelled and what is asked of wrong protocols: see backward_protocol_model.py.
"""
import sys

sys.dont_write_bytecode = True
import pair_faults as fault  # noqa: E402
from pair_machine import WORD_SLOTS, Cta, Form, Pair  # noqa: E402
from protocol_machine import outcome  # noqa: E402


class Plain(Cta):
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
        yield from self.finish(group, number)

    def step(self, group, word):
        self.load_stats(word)
        yield
        yield from self.wait_dout(word)
        reads = self.begin_read(self.dp_reads(word))
        self.accumulate(group, word)
        yield
        self.end_read(reads)
        yield from self.release_everywhere(group, "o", word, fault.DOUT_OWN)
        if word.last:
            self.empty["v"][word.block % self.form.value_stages].arrive(4)
        following = yield from self.next_word(group, word.number + 1)
        self.load_stats(following)
        yield from self.store_ds(group, word)
        if following.first:
            if self.wrong != fault.K_LATE:
                self.publish_ds(group, word)
            yield from self.read_q(group, word, self.q_reads(word))
            yield from self.take_block(group, word.block)
            self.write_block(group, word.block)
            yield from self.wait_key(following)
            reads = self.begin_read(self.scores_reads(following))
            if self.wrong == fault.K_LATE:
                self.publish_ds(group, word)
            yield
            self.end_read(reads)
        else:
            publish = lambda: self.publish_ds(group, word)
            yield from self.read_q(group, word, self.q_reads(word) + self.scores_reads(following), publish)
            if word.last:
                yield from self.take_block(group, word.block)
                self.write_block(group, word.block)
        yield
        return following

    def read_q(self, group, word, reads, publish=lambda: None):
        """dK of a tile, perhaps with the next one's scores; then the tile's Q is free."""
        reads = self.begin_read(reads)
        if self.wrong == fault.Q_EARLY:
            yield from self.release_everywhere(group, "q", word, fault.Q_OWN)
        yield
        publish()
        yield
        self.end_read(reads)
        if self.wrong != fault.Q_EARLY:
            yield from self.release_everywhere(group, "q", word, fault.Q_OWN)
        yield


class Overlapped(Cta):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.products = [[], []]  # of each column warpgroup: what its dV, dK and dP in flight read

    # overlapped_columns.cuh
    def columns(self, group):
        word = yield from self.next_word(group, 0)
        previous, number = None, 0
        if word.tile is not None:
            self.load_stats(word)
            yield from self.wait_key(word)
            yield from self.wait_dout(word)
            reads = self.begin_read(self.scores_reads(word) + self.dp_reads(word))
            yield
            self.end_read(reads)
        while word.tile is not None:
            previous, word = word, (yield from self.step(group, word, previous))
            number += 1
        self.end_read(self.products[group])
        yield
        if previous is not None:
            yield from self.take_block(group, word.block if self.wrong == fault.END_PLACE else previous.block)
            if self.wrong != fault.NO_LAST_WRITE:
                self.write_block(group, previous.block)
        yield from self.finish(group, number)

    def step(self, group, word, previous):
        yield
        complete = word.first and previous is not None  # the block before this one
        if complete and self.wrong != fault.SLOT_LATE:
            yield from self.take_block(group, previous.block)
        following = yield from self.next_word(group, word.number + 1)
        self.end_read(self.products[group])
        yield
        if previous is not None:
            if self.wrong != fault.Q_EARLY:
                yield from self.release_everywhere(group, "q", previous, fault.Q_OWN)
        if word.last:
            self.empty["v"][word.block % self.form.value_stages].arrive(4)
        yield
        self.load_stats(following)
        yield from self.store_ds(group, word)
        if following.first:
            yield from self.wait_key(following)
        scores = self.begin_read(self.scores_reads(following))
        yield
        if complete and self.wrong == fault.SLOT_LATE:
            yield from self.take_block(group, previous.block)
        if complete and self.wrong != fault.WRITE_LATE:
            self.write_block(group, previous.block)
        yield
        if following.tile is not None:
            yield from self.wait_dout(following)
        stage = word.number % self.form.dout_stages
        gradients = [("o0", stage, word.tile), ("o1", stage, word.tile)] + self.q_reads(word)
        self.products[group] = self.begin_read(gradients + self.dp_reads(following))
        self.accumulate(group, word)
        if complete and self.wrong == fault.WRITE_LATE:
            self.write_block(group, previous.block)
        if self.wrong == fault.Q_EARLY:
            yield from self.release_everywhere(group, "q", word, fault.Q_OWN)
        yield
        self.publish_ds(group, word)
        yield
        self.end_read(scores)
        return following


FORMS = [(Plain, Form("head_dim 128", 3, 2, 1, 1, False), fault.PLAIN),
         (Overlapped, Form("head_dim 64, overlapped", 5, 5, 2, 2, True), fault.OVERLAPPED)]


def main(arguments):
    schedules = int(arguments[0]) if arguments else 60
    bad = False
    for cta, form, wrongs in FORMS:
        for slots in (WORD_SLOTS, form.row_stages + 2):  # as it is, and as few as shared_memory.hpp allows
            found = outcome(schedules, lambda seed: Pair(seed, cta, form, word_slots=slots))
            bad |= found is not None
            print(f"pairs, {form.name}, {slots} word slots: {found or f'{schedules} schedules end well'}")
        for wrong in wrongs:
            found = outcome(10 * schedules, lambda seed: Pair(seed, cta, form, wrong))
            bad |= found is None or (wrong in fault.STALLS and "stall" not in found)
            print(f"  {wrong}: {'found out, ' + found if found else 'NOT FOUND OUT'}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
