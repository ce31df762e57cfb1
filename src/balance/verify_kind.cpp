// As naive as the rest of the verifier, and without a function of src/balance/layouts.cpp.
#include "balance/verify_kind.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "balance/refute.hpp"
#include "core/check.hpp"

namespace flashmask::balancing {
namespace {

using List = std::vector<std::int64_t>;

std::string contiguous_finding(const PlanRecord& r) {
  for (std::size_t c = 1; c < r.assignment.size(); ++c) {
    if (r.assignment[c] < r.assignment[c - 1]) {
      return core::format("kind is contiguous, but chunk {} is on rank {} and chunk {} on rank {}", c - 1,
                          r.assignment[c - 1], c, r.assignment[c]);
    }
  }
  return {};
}

/// One zigzag from chunk `begin` on: up[r] chunks of rank r going up the ranks, then down[r] coming down. Returns the
/// first chunk that is elsewhere, or the end.
std::size_t zigzag_end(const PlanRecord& r, std::size_t begin, const List& up, const List& down,
                       std::int64_t& expected) {
  std::size_t c = begin;
  const auto take = [&](std::int64_t rank, std::int64_t count) {
    expected = rank;
    for (; count > 0; --count, ++c) {
      if (c >= r.assignment.size() || r.assignment[c] != rank) return false;
    }
    return true;
  };
  for (std::int64_t rank = 0; rank < r.ranks; ++rank) {
    if (!take(rank, up[static_cast<std::size_t>(rank)])) return c;
  }
  for (std::int64_t rank = r.ranks; rank-- > 0;) {
    if (!take(rank, down[static_cast<std::size_t>(rank)])) return c;
  }
  expected = -1;
  return c;
}

std::string misplaced(const PlanRecord& r, const char* kind, std::size_t chunk, std::int64_t expected) {
  if (chunk >= r.assignment.size()) return core::format("kind is {}, but the last zigzag is cut off", kind);
  return core::format("kind is {}, but chunk {} is on rank {} where the zigzag puts rank {}", kind, chunk,
                      r.assignment[chunk], expected);
}

std::string dual_chunk_finding(const PlanRecord& r) {
  List up(static_cast<std::size_t>(r.ranks), 0), down = up;
  for (const std::int64_t rank : r.assignment) ++down[static_cast<std::size_t>(rank)];
  for (std::size_t k = 0; k < up.size(); ++k) {
    up[k] = (down[k] + 1) / 2;
    down[k] /= 2;
  }
  std::int64_t expected = -1;
  const std::size_t end = zigzag_end(r, 0, up, down, expected);
  return expected < 0 ? std::string() : misplaced(r, "dual_chunk", end, expected);
}

/// Zigzags of `pieces[d]` chunks a piece one after the other; without documents the length of each is how long rank 0
/// starts it.
std::string per_document_finding(const PlanRecord& r, std::span<const std::int64_t> documents) {
  constexpr const char* kName = "per_document_dual_chunk";
  const std::int64_t unit = 2 * r.ranks * r.chunk;
  std::size_t c = 0;
  for (std::size_t d = 0; documents.empty() ? c < r.assignment.size() : d < documents.size(); ++d) {
    std::int64_t piece = 0;
    if (!documents.empty()) {
      if (documents[d] % unit != 0) {
        return core::format("kind is {}, but document {} has {} tokens, not a multiple of 2 * ranks * chunk = {}",
                            kName, d, documents[d], unit);
      }
      piece = documents[d] / unit;
    } else {
      for (std::size_t i = c; i < r.assignment.size() && r.assignment[i] == 0; ++i) ++piece;
      if (piece == 0) return misplaced(r, kName, c, 0);
      if (r.ranks == 1) piece /= 2;
      if (piece == 0) return misplaced(r, kName, r.assignment.size(), 0);
    }
    const List pieces(static_cast<std::size_t>(r.ranks), piece);
    std::int64_t expected = -1;
    c = zigzag_end(r, c, pieces, pieces, expected);
    if (expected >= 0) return misplaced(r, kName, c, expected);
  }
  if (c != r.assignment.size()) {
    return core::format("kind is {}, but the documents end at chunk {} of {}", kName, c, r.assignment.size());
  }
  return {};
}

std::string lpt_finding(const PlanRecord& r) {
  const List dealt = lpt_assignment(r);
  for (std::size_t c = 0; c < dealt.size(); ++c) {
    if (r.assignment[c] == dealt[c]) continue;
    return core::format("the plan is by lpt, but chunk {} is on rank {} where lpt puts it on rank {}", c,
                        r.assignment[c], dealt[c]);
  }
  return {};
}

/// Why `method` cannot have found a plan of these sizes; empty: it can.
std::string method_finding(const PlanRecord& r) {
  const std::int64_t n = static_cast<std::int64_t>(r.assignment.size()), count = n / r.ranks;
  const bool equal = n % r.ranks == 0, alike = r.speeds.empty();
  const char* takes = nullptr;
  if ((r.method == PlanMethod::bldm || r.method == PlanMethod::fill) && !alike) takes = "ranks of one speed";
  if (r.method == PlanMethod::pairs && r.ranks < 2) takes = "two ranks";
  if (r.method == PlanMethod::triples && !(alike && equal && count >= 2 && count <= 5 && r.ranks >= 3)) {
    takes = "at least three ranks of one speed with 2 to 5 chunks each";
  }
  if (r.method == PlanMethod::exact && !search_fits(r)) takes = kSearchTakes;
  if (r.method == PlanMethod::hierarchy && (r.nodes < 2 || r.needs.empty())) takes = "nodes and need sets";
  if (takes == nullptr) return {};
  return core::format("method is {}, which takes {}, but there are {} chunks on {} ranks of {} nodes{}",
                      to_string(r.method), takes, n, r.ranks, r.nodes, alike ? "" : " with speeds");
}

/// Loads in tiles are whole numbers of partial and of unmasked tiles at their costs.
std::string tiles_finding(const PlanRecord& r) {
  const TileWork& t = *r.tile_work;
  const auto cost = [&](std::int64_t forward, std::int64_t backward) {
    return Refuter::Wide{t.forward_weight} * forward + Refuter::Wide{t.backward_weight} * backward;
  };
  const Refuter::Wide partial = cost(t.costs.forward.partial, t.costs.backward.partial);
  Refuter::Wide common = cost(t.costs.forward.unmasked, t.costs.backward.unmasked);
  for (Refuter::Wide rest = partial; rest != 0;) rest = std::exchange(common, rest) % rest;
  for (std::size_t c = 0; c < r.chunk_loads.size(); ++c) {
    if (common == 0 ? r.chunk_loads[c] == 0 : r.chunk_loads[c] % common == 0) continue;
    return core::format(
        "unit is tiles, but chunk {} carries {}, which no number of tiles at the costs of tile_work gives", c,
        r.chunk_loads[c]);
  }
  return {};
}

/// Visible cells and need sets of a chunk come from the same cells: every chunk that is needed gives at least one.
std::string unit_finding(const PlanRecord& r) {
  if (r.tile_work) return tiles_finding(r);
  if (r.unit != WorkUnit::cells || r.needs.empty()) return {};
  for (std::size_t c = 0; c < r.chunk_loads.size(); ++c) {
    std::int64_t needed = 0;
    for (const NeedSets& need : r.needs) {
      for (std::int64_t b = 0; b < need.batch(); ++b) {
        for (const ChunkRun& run : need.row(b, static_cast<std::int64_t>(c))) {
          needed += need.weight * (run.end - run.begin);
        }
      }
    }
    if (r.chunk_loads[c] < needed || (needed == 0 && r.chunk_loads[c] > 0)) {
      return core::format("unit is cells, but chunk {} carries {} and sees {} chunks, each with a visible cell", c,
                          r.chunk_loads[c], needed);
    }
  }
  return {};
}

}  // namespace

List rank_sums(const PlanRecord& r, std::span<const std::int64_t> assignment) {
  List sums(static_cast<std::size_t>(r.ranks), 0);
  for (std::size_t c = 0; c < assignment.size(); ++c) sums[static_cast<std::size_t>(assignment[c])] += r.chunk_loads[c];
  return sums;
}

std::int64_t last_end(const PlanRecord& r, std::span<const std::int64_t> sums) {
  const std::int64_t fastest = r.speeds.empty() ? 1 : *std::max_element(r.speeds.begin(), r.speeds.end());
  std::int64_t last = 0;
  for (std::size_t k = 0; k < sums.size(); ++k) {
    const std::int64_t own = r.speeds.empty() ? 1 : r.speeds[k];
    last = std::max(last, static_cast<std::int64_t>((Refuter::Wide{sums[k]} * fastest + own - 1) / own));
  }
  return last;
}

/// Largest load first to the rank that would end earliest and has room, of equal ones the fastest, then the first.
/// Without speeds and with equal counts a load is what it has above the lightest.
List lpt_assignment(const PlanRecord& r) {
  const std::int64_t n = static_cast<std::int64_t>(r.assignment.size());
  const bool lifted = r.speeds.empty() && n % r.ranks == 0;
  const std::int64_t base = lifted ? *std::min_element(r.chunk_loads.begin(), r.chunk_loads.end()) : 0;
  List room(static_cast<std::size_t>(r.ranks), 0), loads = room;
  for (const std::int64_t rank : r.assignment) ++room[static_cast<std::size_t>(rank)];
  std::vector<std::size_t> order(r.assignment.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return r.chunk_loads[a] > r.chunk_loads[b]; });
  const std::int64_t fastest = r.speeds.empty() ? 1 : *std::max_element(r.speeds.begin(), r.speeds.end());
  using End = std::tuple<std::int64_t, std::int64_t, std::int64_t>;  // time, -speed, rank
  const auto end_of = [&](std::int64_t rank, std::int64_t more) {
    const std::size_t k = static_cast<std::size_t>(rank);
    const std::int64_t load = loads[k] + more, speed = r.speeds.empty() ? 1 : r.speeds[k];
    return End{static_cast<std::int64_t>((Refuter::Wide{load} * fastest + speed - 1) / speed), -speed, rank};
  };
  std::set<End> equal;  // ranks with room by load; only without speeds, where one more chunk keeps the order
  List open;            // ranks with room, only with speeds
  for (std::int64_t k = 0; k < r.ranks; ++k) {
    if (room[static_cast<std::size_t>(k)] == 0) continue;
    r.speeds.empty() ? void(equal.insert(end_of(k, 0))) : open.push_back(k);
  }
  List dealt(r.assignment.size(), 0);
  for (const std::size_t c : order) {
    const std::int64_t w = r.chunk_loads[c] - base;
    End best{std::numeric_limits<std::int64_t>::max(), 0, 0};
    if (r.speeds.empty()) {
      best = equal.extract(equal.begin()).value();
    } else {
      for (const std::int64_t k : open) best = std::min(best, end_of(k, w));
    }
    const std::int64_t rank = std::get<2>(best);
    dealt[c] = rank;
    loads[static_cast<std::size_t>(rank)] += w;
    const bool more = --room[static_cast<std::size_t>(rank)] > 0;
    if (more && r.speeds.empty()) equal.insert(end_of(rank, 0));
    if (!more && !r.speeds.empty()) open.erase(std::find(open.begin(), open.end(), rank));
  }
  return dealt;
}

bool search_fits(const PlanRecord& r) {
  const std::int64_t n = static_cast<std::int64_t>(r.assignment.size());
  return r.speeds.empty() && n <= 64 && n >= r.ranks && (n + r.ranks - 1) / r.ranks <= 5;
}

std::string kind_finding(const PlanRecord& r, std::span<const std::int64_t> documents) {
  if (r.assignment.empty()) return {};
  const bool search = r.kind == PlanKind::hcc_ipo;
  const bool layout = !search && r.kind != PlanKind::lpt;
  const bool method_fits = layout                    ? r.method == PlanMethod::layout
                           : r.kind == PlanKind::lpt ? r.method == PlanMethod::lpt
                                                     : r.method != PlanMethod::layout;
  if (!method_fits) {
    return core::format("kind is {}, but method is {}, which finds no such plan", to_string(r.kind),
                        to_string(r.method));
  }
  if (!search && (r.seed != 0 || r.epsilon_millionths != 0)) {
    return core::format("kind is {}, which has neither seed nor epsilon, but they are {} and {} millionths",
                        to_string(r.kind), r.seed, r.epsilon_millionths);
  }
  for (std::string finding : {method_finding(r), unit_finding(r)}) {
    if (!finding.empty()) return finding;
  }
  if (r.method == PlanMethod::lpt) return lpt_finding(r);
  switch (r.kind) {
    case PlanKind::contiguous:
      return contiguous_finding(r);
    case PlanKind::dual_chunk:
      return dual_chunk_finding(r);
    case PlanKind::per_document_dual_chunk:
      return per_document_finding(r, documents);
    default:
      return {};
  }
}

}  // namespace flashmask::balancing
