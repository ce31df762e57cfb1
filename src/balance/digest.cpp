#include "balance/digest.hpp"

#include <span>
#include <vector>

#include "balance/instance.hpp"

namespace flashmask {
namespace {

/// FNV-1a over 64-bit words with a final mix.
class Digest {
 public:
  void add(std::uint64_t x) {
    h_ = (h_ ^ x) * 0x100000001b3ULL;
    h_ ^= h_ >> 29;
  }
  void add(std::int64_t x) { add(static_cast<std::uint64_t>(x)); }
  void add(std::span<const std::int64_t> xs) {
    add(xs.size());
    for (const std::int64_t x : xs) add(x);
  }
  [[nodiscard]] std::uint64_t value() const { return balancing::mix(h_); }

 private:
  std::uint64_t h_ = 0xcbf29ce484222325ULL;
};

void add_runs(Digest& d, std::span<const ChunkRun> runs) {
  d.add(runs.size());
  for (const ChunkRun& run : runs) d.add(std::int64_t{run.begin} << 32 | run.end);
}

/// A bit a chunk, 64 in a word.
void add_words(Digest& d, std::span<const ChunkRun> runs, std::int64_t chunks) {
  std::vector<std::uint64_t> words(static_cast<std::size_t>((chunks + 63) / 64), 0);
  for (const ChunkRun& run : runs) {
    for (std::int32_t c = run.begin; c < run.end; ++c) {
      words[static_cast<std::size_t>(c >> 6)] |= std::uint64_t{1} << (c & 63);
    }
  }
  for (const std::uint64_t word : words) d.add(word);
}

enum class Sets : std::uint8_t { as_runs, as_words };

std::uint64_t digest_of(const PlanRecord& r, Sets sets) {
  Digest d;
  for (const std::int64_t x :
       {r.columns, r.chunk, r.ranks, r.nodes, static_cast<std::int64_t>(r.kind), static_cast<std::int64_t>(r.unit)}) {
    d.add(x);
  }
  for (const auto* list : {&r.assignment, &r.chunk_loads, &r.speeds, &r.loads}) d.add(*list);
  for (const std::int64_t x :
       {r.peak, r.lower_bound, static_cast<std::int64_t>(r.bound_by), static_cast<std::int64_t>(r.proven_optimal),
        static_cast<std::int64_t>(r.method), r.epsilon_millionths, static_cast<std::int64_t>(r.seed)}) {
    d.add(x);
  }
  d.add(r.needs.size());
  for (const NeedSets& n : r.needs) {
    for (const std::int64_t x : {n.weight, n.batch(), n.chunks()}) d.add(x);
    for (std::int64_t b = 0; b < n.batch(); ++b) {
      for (std::int64_t i = 0; i < n.chunks(); ++i) {
        sets == Sets::as_runs ? add_runs(d, n.row(b, i)) : add_words(d, n.row(b, i), n.chunks());
      }
    }
  }
  d.add(r.inbound);
  d.add(r.outbound);
  for (const std::int64_t x :
       {r.traffic.inter_chunks, r.traffic.intra_chunks, r.traffic.inter_rows, r.traffic.intra_rows}) {
    d.add(x);
  }
  if (r.tile_work) {  // absent it adds nothing, so digests from before it existed stay
    const TileWork& t = *r.tile_work;
    for (const std::int64_t x : {std::int64_t{t.tile_shape.block_m}, std::int64_t{t.tile_shape.block_n},
                                 t.forward_weight, t.costs.forward.partial, t.costs.forward.unmasked, t.backward_weight,
                                 t.costs.backward.partial, t.costs.backward.unmasked}) {
      d.add(x);
    }
  }
  if (r.residue) {
    for (const std::int64_t x : {r.residue->modulus, r.residue->rest, r.residue->other}) d.add(x);
  }
  return d.value();
}

}  // namespace

std::uint64_t plan_digest(const PlanRecord& record) {
  return digest_of(record, Sets::as_runs);
}

std::uint64_t balancing::plan_digest_before_4(const PlanRecord& record) {
  return digest_of(record, Sets::as_words);
}

}  // namespace flashmask
