#include "overlap/contamination.hpp"

#include <algorithm>
#include <cmath>

#include "core/check.hpp"

namespace flashmask::overlap {
namespace {

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

/// Whole numbers out of shares; anything that is no number at all counts as -1 (nothing can be right about it).
std::int64_t count_of(double share, double total) {
  const double n = share * total;
  return std::isfinite(n) && n > -0.5 && n < 9e15 ? std::llround(n) : -1;
}

}  // namespace

std::string_view to_string(Contamination::Kind kind) {
  switch (kind) {
    case Contamination::Kind::hidden_seen:
      return "hidden columns seen";
    case Contamination::Kind::previous_call:
      return "values of the previous call";
    case Contamination::Kind::swapped:
      return "chunks swapped";
    case Contamination::Kind::missing:
      return "columns missing";
    case Contamination::Kind::other:
      return "other";
  }
  return "unknown";
}

ContaminationCheck::ContaminationCheck(const ColumnMask& mask, const Plan& plan, std::int64_t query_heads,
                                       std::int64_t kv_heads, std::int64_t head_dim,
                                       const std::vector<std::vector<std::int64_t>>& documents)
    : mask_(mask), columns_(mask.shape().columns), query_heads_(query_heads), kv_heads_(kv_heads), head_dim_(head_dim) {
  if (head_dim < 4) {
    core::fail(ErrorCode::unsupported, "head_dim = {}: the contamination check needs 4 or more", head_dim);
  }
  core::check(plan.columns() == columns_, "the plan deals {} tokens but the mask has {}", plan.columns(), columns_);
  std::int64_t most = 0;
  for (std::int64_t b = 0; b < mask.shape().batch; ++b) {
    const auto& lengths = documents.size() == 1 ? documents[0] : documents.at(at(b));
    auto& codes = codes_.emplace_back();
    std::int64_t begin = 0;
    for (std::size_t d = 0; begin < columns_; ++d) {
      const std::int64_t end = d < lengths.size() ? std::min(columns_, begin + lengths[d]) : columns_;
      while (begin < end) {
        const std::int64_t chunk = begin / plan.chunk();
        const std::int64_t stop = std::min(end, plan.chunk_end(chunk));
        codes.push_back({static_cast<std::int64_t>(d), chunk, begin, stop});
        begin = stop;
      }
    }
    most = std::max(most, static_cast<std::int64_t>(codes.size()));
  }
  windows_ = std::max<std::int64_t>(1, (most + codes_per_call() - 1) / codes_per_call());
  calls_ = std::max<std::int64_t>(2, windows_);
}

std::vector<float> ContaminationCheck::values(std::int64_t call) const {
  const std::int64_t batch = mask_.shape().batch;
  std::vector<float> v(at(batch * columns_ * kv_heads_ * head_dim_), 0.0F);
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::size_t i = 0; i < codes_[at(b)].size(); ++i) {
      const Code& code = codes_[at(b)][i];
      const std::int64_t dim = static_cast<std::int64_t>(i) - first_code(call);
      for (std::int64_t j = code.begin; j < code.end; ++j) {
        for (std::int64_t h = 0; h < kv_heads_; ++h) {
          float* token = &v[at(((b * columns_ + j) * kv_heads_ + h) * head_dim_)];
          token[parity_dim(call)] = 1.0F;
          if (dim >= 0 && dim < codes_per_call()) token[code_dim(call) + dim] = 1.0F;
        }
      }
    }
  }
  return v;
}

std::vector<std::int64_t> ContaminationCheck::visible(std::int64_t b, std::int64_t mask_head, const Code& code) const {
  const std::int64_t rows = mask_.shape().rows;
  std::vector<std::int64_t> change(at(rows + 1), 0);
  change[0] = code.end - code.begin;
  for (std::int64_t j = code.begin; j < code.end; ++j) {
    const HiddenRows c = canonical(mask_.at(b, mask_head, j), static_cast<std::int32_t>(rows));
    if (c.lts < c.lte) --change[at(c.lts)], ++change[at(c.lte)];
    if (c.uts < c.ute) --change[at(c.uts)], ++change[at(c.ute)];
  }
  for (std::int64_t i = 1; i < rows; ++i) change[at(i)] += change[at(i - 1)];
  change.resize(at(rows));
  return change;
}

void ContaminationCheck::inspect(std::int64_t call, const std::vector<float>& out, const std::vector<float>& lse) {
  const MaskShape& shape = mask_.shape();
  core::check(out.size() == at(shape.batch * columns_ * query_heads_ * head_dim_) &&
                  lse.size() == at(shape.batch * query_heads_ * columns_),
              "outputs of {} and {} elements do not fit the problem", out.size(), lse.size());
  for (std::int64_t b = 0; b < shape.batch; ++b) {
    for (std::int64_t m = 0; m < shape.heads; ++m) {
      std::vector<std::vector<std::int64_t>> expected;  // [code][row]
      for (const Code& code : codes_[at(b)]) expected.push_back(visible(b, m, code));
      const std::int64_t group = query_heads_ / shape.heads;
      for (std::int64_t head = m * group; head < (m + 1) * group; ++head) {
        for (std::int64_t row = 0; row < columns_; ++row) {
          inspect_row(call, b, head, row, &out[at(((b * columns_ + row) * query_heads_ + head) * head_dim_)],
                      lse[at((b * query_heads_ + head) * columns_ + row)], expected);
        }
      }
    }
  }
}

void ContaminationCheck::inspect_row(std::int64_t call, std::int64_t b, std::int64_t head, std::int64_t row,
                                     const float* out, float lse,
                                     const std::vector<std::vector<std::int64_t>>& expected) {
  const auto& codes = codes_[at(b)];
  const std::int64_t first = first_code(call);
  const std::int64_t last = std::min(first + codes_per_call(), static_cast<std::int64_t>(codes.size()));
  const double total = std::exp(static_cast<double>(lse));
  const auto seen = [&](std::int64_t code) { return count_of(out[code_dim(call) + code - first], total); };
  const auto wanted = [&](std::int64_t code) { return expected[at(code)][at(row)]; };
  const std::int64_t stale = count_of(out[parity_dim(call + 1)], total);
  for (std::int64_t i = first; i < last; ++i) {
    const std::int64_t got = seen(i), due = wanted(i);
    if (got == due) continue;
    const Code& code = codes[at(i)];
    Contamination f;
    f.batch = b, f.head = head, f.row = row, f.document = code.document, f.chunk = code.chunk, f.rows_affected = 1;
    std::string why;
    std::int64_t partner = -1;  // a chunk of the same document whose count this one shows, and the other way round
    for (std::int64_t j = first; j < last && partner < 0; ++j) {
      if (j != i && codes[at(j)].document == code.document && seen(j) == due && got == wanted(j)) partner = j;
    }
    if (partner >= 0) {
      f.kind = Contamination::Kind::swapped;
      f.chunk = std::min(code.chunk, codes[at(partner)].chunk);
      why = core::format("chunks {} and {} of it are in each other's place", f.chunk,
                        std::max(code.chunk, codes[at(partner)].chunk));
    } else if (got > due) {
      f.kind = Contamination::Kind::hidden_seen;
      why = "the mask hides them: a boundary is lost";
    } else if (stale > 0) {
      f.kind = Contamination::Kind::previous_call;
      why = core::format("{} columns carry values of the previous call", stale);
    } else if (got < due) {
      f.kind = Contamination::Kind::missing;
      why = "they carry no value: the chunk was dropped";
    }
    f.text =
        core::format("batch row {}, head {}, row {} saw {} columns of document {} in chunk {}, the mask shows {}; {}", b,
                    head, row, got, code.document, code.chunk, due, why);
    find(std::move(f));
  }
}

void ContaminationCheck::find(Contamination finding) {
  for (Contamination& known : findings_) {
    if (known.kind != finding.kind || known.chunk != finding.chunk || known.batch != finding.batch) continue;
    ++known.rows_affected;
    return;
  }
  findings_.push_back(std::move(finding));
}

}  // namespace flashmask::overlap
