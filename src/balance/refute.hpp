// Why no assignment stays within a target: every argument of docs/balance.md a second time, for the verifier, without a
// function of the search.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "flashmask/balance.hpp"

namespace flashmask::balancing {

/// Refutes targets for the loads, speeds and chunk counts of one plan.
class Refuter {
 public:
  using List = std::vector<std::int64_t>;
  __extension__ typedef __int128 Wide;

  /// `counts`: chunks of every rank, any two of which differ by one at most.
  Refuter(const PlanRecord& record, List counts);

  /// Whether the argument `by` shows that no assignment has a peak of at most `target`; never by `search`, by `residue`
  /// on the lattice that the plan names.
  [[nodiscard]] bool refuted_by(BoundBy by, std::int64_t target) const;
  /// Whether any of them does.
  [[nodiscard]] bool refuted(std::int64_t target) const;

  /// Whether an assignment within `target` exists, by covering the chunks with groups that could be ranks; nothing
  /// where that takes more than `steps`. Only without speeds, for at most 64 chunks and at
  /// least one a rank.
  [[nodiscard]] std::optional<bool> reachable(std::int64_t target, std::int64_t steps) const;

 private:
  [[nodiscard]] std::int64_t ranks() const { return static_cast<std::int64_t>(counts_.size()); }
  [[nodiscard]] Wide capacity(std::size_t rank, std::int64_t target) const {
    return speeds_.empty() ? Wide{target} : Wide{target} * speeds_[rank] / fastest_;
  }
  [[nodiscard]] Wide sum(std::int64_t from, std::int64_t count) const;
  [[nodiscard]] Wide smallest(std::int64_t count) const;
  [[nodiscard]] std::int64_t beyond_lattice(std::int64_t target) const;
  [[nodiscard]] bool average(std::int64_t target) const;
  [[nodiscard]] bool by_counts(std::int64_t target) const;
  [[nodiscard]] bool pigeonhole(std::int64_t target) const;
  [[nodiscard]] bool covering(std::int64_t target) const;
  [[nodiscard]] bool apart(std::int64_t target) const;
  [[nodiscard]] Wide company(std::int64_t q, std::int64_t ranks, std::int64_t count) const;
  [[nodiscard]] bool residue(std::int64_t target) const;
  [[nodiscard]] bool two_residues(std::int64_t target) const;
  [[nodiscard]] bool line_refutes(std::int64_t target, std::int64_t i, std::int64_t j, std::int64_t first,
                                  const List& strange) const;
  [[nodiscard]] Wide wasted(std::int64_t target, std::int64_t first, std::int64_t second, std::int64_t load) const;

  List w_, counts_, speeds_;  // loads, heaviest first
  std::optional<ResidueLattice> lattice_;
  std::vector<Wide> before_;  // sums of the loads before a position
  std::int64_t total_ = 0, fewest_ = 0, most_ = 0, fastest_ = 1;
};

}  // namespace flashmask::balancing
