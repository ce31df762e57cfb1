#include "balance/residue.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

#include "balance/state.hpp"

namespace flashmask::balancing {
namespace {

/// All but few loads equal `residue` modulo `modulus`.
struct Lattice {
  std::int64_t modulus = 1;
  std::int64_t residue = 0;
  std::vector<std::int64_t> offsets;  ///< (load - residue) mod modulus of the others, in [1, modulus)
};

/// Fills `offsets`; false when there are more than `most` of them.
bool collect(const Instance& in, Lattice& lattice, std::size_t most) {
  lattice.offsets.clear();
  for (const std::int64_t w : in.loads) {
    const std::int64_t offset = modulo(w - lattice.residue, lattice.modulus);
    if (offset == 0) continue;
    if (lattice.offsets.size() == most) return false;
    lattice.offsets.push_back(offset);
  }
  return true;
}

/// Whether the chunks off the lattice could save enough slack for `target`. A rank of k chunks on the lattice ends
/// t = (target - k * residue) mod modulus below the target at best. One chunk off the lattice saves its offset if that
/// is at most t and nothing otherwise; chunks that share a rank save at most t together, so at most t/2 each.
bool possible(const Instance& in, const Lattice& lattice, std::int64_t target) {
  const auto waste = [&](std::int64_t count) {
    return modulo(target - count * (lattice.residue % lattice.modulus), lattice.modulus);
  };
  const std::int64_t most = in.counts.front(), fewest = in.counts.back();
  const std::int64_t many = in.chunks() - fewest * in.ranks();
  const std::int64_t ta = waste(most), tb = waste(fewest);
  const Int128 wasted = most == fewest ? Int128{tb} * in.ranks() : Int128{ta} * many + Int128{tb} * (in.ranks() - many);
  const std::int64_t widest = std::max(ta, tb);
  Int128 doubled_saving = 0;
  for (const std::int64_t offset : lattice.offsets) {
    const bool alone = offset <= ta || offset <= tb;
    doubled_saving += alone ? std::max(2 * offset, widest) : widest;
  }
  const Int128 slack = Int128{target} * in.ranks() - in.total;
  return 2 * slack >= 2 * wasted - doubled_saving;
}

/// Moduli worth trying: divisors that differences of loads share when few loads disturb them.
std::vector<Lattice> candidates(const Instance& in) {
  std::vector<Lattice> found;
  Random random(0x5eed);
  const std::uint64_t n = static_cast<std::uint64_t>(in.chunks());
  const auto pick = [&] { return in.loads[random.below(n)]; };
  for (int attempt = 0; attempt < 12; ++attempt) {
    const std::int64_t base = pick();
    std::int64_t modulus = 0;
    for (int i = 0; i < 5; ++i) modulus = std::gcd(modulus, pick() - base);
    if (modulus < 2 || modulus > kLargestModulus) continue;
    const auto same = [&](const Lattice& l) { return l.modulus == modulus && (base - l.residue) % modulus == 0; };
    if (std::none_of(found.begin(), found.end(), same)) found.push_back({modulus, base, {}});
  }
  return found;
}

}  // namespace

Bound residue_bound(const Instance& in, const Bound& bound) {
  Bound best = bound;
  if (!in.speeds.empty() || in.chunks() < 4) return best;
  for (Lattice& lattice : candidates(in)) {
    if (!collect(in, lattice, static_cast<std::size_t>(2 * in.ranks()))) continue;
    // Ends within `modulus` steps: each adds a unit of slack on every rank, and every rank wastes less than `modulus`.
    while (!possible(in, lattice, best.value))
      best = {best.value + 1, BoundBy::residue, lattice.modulus, lattice.residue};
  }
  return best;
}

}  // namespace flashmask::balancing
