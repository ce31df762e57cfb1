"""Wrong protocols of the backward's pairs of CTAs, which backward_pair_model.py has to find out, and what each form of
the columns may fall for."""

Q_OWN = "Q released to its own CTA only"
DS_OWN = "dS released by its own CTA only"
PEER_DS_EARLY = "the other CTA's dS released before it has landed"
K_EARLY = "K released before the product with the other CTA's"
K_NOT_FREE = "no wait for a free K buffer"
PEER_K_NOT_FREE = "the other CTA's K loaded before the wait for its free buffer"
K_FIRST = "K loaded before Q of its first tile"
DOUT_OWN = "dO released to its own CTA only"
DOUT_EARLY = "dO loaded before its buffer is free"
SLOT_OWN = "work slots released by the columns of CTA 0 only"
SLOT_UNREAD = "work slot released before the place was read"
END_OWN = "the end told to CTA 0 only"
END_EARLY = "the end told before its buffer of Q is free"
END_UNREAD = "the end told to dQ and the sender before its buffer of dS is free"
FRONTS = "each CTA reads the front for itself"
COPY_EARLY = "dS sent before it is published"
VALUE_PARITY = "one V buffer's parity with two"
NOT_LANDED = "no wait for the other CTA's dS"
DS_NOT_FREE = "no wait for a free dS buffer"
NO_FENCE = "dS published without the fence"
HALF_BYTES = "full_q expects the bytes of one half only"
KEY_BYTES = "full_k expects the bytes of its own K only"
STATISTICS_EARLY = "statistics loaded before the wait for Q's buffer"
Q_EARLY = "Q released before dK was read"
OWN_DS_EARLY = "its own dS released before the product with it"
FEW_WORDS = "one word slot fewer than row stages + 2"
LEAVES = "no cluster barrier at the end"

# Only where dO lands on Q's barrier.
DOUT_UNCOUNTED = "full_q expects Q and its statistics, not dO, which lands on it too"

# Only where the CTAs have dQ of tiles in turn.
PEER_DS_LANDED = "the other CTA's dS released when it has landed"
OWN_TWICE = "dS of a CTA's own tile released by both"
NOT_PASSED = "the other CTA's tile released by that one only"
K_KEPT = "K not released with a last tile that is the other CTA's"

# Of the columns.
K_LATE = "dS published after the wait for K at a block border"
SLOT_LATE = "work slot released after the wait for the next tile"
WRITE_LATE = "dV and dK written after the next block's first product"
END_PLACE = "the last block written to the end word's place"
NO_LAST_WRITE = "the last block not written"

# Not among what a form may fall for. Plain: the other CTA's dS may be released as soon as it has landed, as its next
# one in the same buffer comes after a copy that this CTA starts later than this product; a tile's statistics may be
# loaded, and the end told, before Q's buffer is free, as both are done with when dO of the tile before finds a buffer.
# Overlapped: with two K buffers neither the border nor K's place in the loader's order matters, and with K behind Q and
# dO, dS could be published as late as after the wait for the tile after the next. In neither does anything rest on the
# wait for a free V: that for K (plain) or for the work slot (overlapped) comes before it and lasts longer.
EITHER = [Q_OWN, DS_OWN, PEER_DS_EARLY, K_EARLY, K_NOT_FREE, PEER_K_NOT_FREE, DOUT_EARLY, SLOT_OWN, SLOT_UNREAD,
          END_OWN, END_UNREAD, FRONTS, COPY_EARLY, NOT_LANDED, DS_NOT_FREE, NO_FENCE, HALF_BYTES, KEY_BYTES, Q_EARLY,
          OWN_DS_EARLY, FEW_WORDS, LEAVES]
PLAIN = EITHER + [DOUT_OWN, K_LATE, K_FIRST]
OVERLAPPED = EITHER + [DOUT_UNCOUNTED, END_EARLY, STATISTICS_EARLY, PEER_DS_LANDED, OWN_TWICE, NOT_PASSED, K_KEPT,
                       SLOT_LATE, WRITE_LATE, END_PLACE, NO_LAST_WRITE, VALUE_PARITY]
STALLS = [K_LATE, K_FIRST, END_OWN, SLOT_LATE, OWN_TWICE, K_KEPT]  # these are found out by that alone
