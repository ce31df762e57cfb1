// As naive as the rest of the verifier, and without a function of src/balance/layouts.cpp.
#include "balance/verify_kind.hpp"

#include <algorithm>
#include <vector>

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

}  // namespace

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
