// What did a row see? With Q = K = 0 every visible column weighs the same, so codes in V come out as counts: the output
// itself shows, end to end, from which chunks of which documents and of which call a row's values came.
//
// Columns are coded by (document, chunk). head_dim - 2 codes fit into one call; the last two dimensions carry the
// parity of the call, so values left over from the previous call are seen too. exp(LSE) turns shares back into counts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "flashmask/attention.hpp"
#include "flashmask/balance.hpp"
#include "flashmask/mask.hpp"

namespace flashmask::overlap {

struct Contamination {
  enum class Kind : std::uint8_t {
    hidden_seen,    ///< columns that the mask hides from the row: a lost boundary
    previous_call,  ///< values of an earlier call
    swapped,  ///< two chunks in each other's place (seen by rows that do not see both whole; others cannot differ)
    missing,  ///< columns that the row should see carry nothing
    other,
  };
  Kind kind = Kind::other;
  std::int64_t batch = 0, head = 0, row = 0;
  std::int64_t document = -1, chunk = -1;  ///< whose columns are wrong
  std::int64_t rows_affected = 0;          ///< rows (of any head) with the same kind and chunk
  std::string text;
};
std::string_view to_string(Contamination::Kind kind);

class ContaminationCheck {
 public:
  /// `documents[b]`: lengths of the documents of batch row b; what is left counts as one more document. One list may
  /// stand for all batch rows. Throws unsupported for a head_dim below 4.
  ContaminationCheck(const ColumnMask& mask, const Plan& plan, std::int64_t query_heads, std::int64_t kv_heads,
                     std::int64_t head_dim, const std::vector<std::vector<std::int64_t>>& documents);

  /// Forward calls to make, in order; at least two, so that there is a previous call.
  [[nodiscard]] std::int64_t calls() const { return calls_; }
  /// V of a call, float32 [batch][tokens][kv_heads][head_dim]; Q and K are zero.
  [[nodiscard]] std::vector<float> values(std::int64_t call) const;
  /// Compares a call's float32 outputs [batch][tokens][query_heads][head_dim] and LSE [batch][query_heads][tokens].
  void inspect(std::int64_t call, const std::vector<float>& out, const std::vector<float>& lse);
  /// What was found, one entry for each (kind, chunk), the first row that shows it named.
  [[nodiscard]] const std::vector<Contamination>& findings() const { return findings_; }

 private:
  struct Code {
    std::int64_t document, chunk, begin, end;  ///< columns [begin, end)
  };
  [[nodiscard]] std::int64_t codes_per_call() const { return (head_dim_ - 2) / 2; }
  /// The first code that a call carries; calls beyond the last window begin again.
  [[nodiscard]] std::int64_t first_code(std::int64_t call) const { return call % windows_ * codes_per_call(); }
  /// Dimension of the first code, and of the parity, of a call.
  [[nodiscard]] std::int64_t code_dim(std::int64_t call) const { return call % 2 * codes_per_call(); }
  [[nodiscard]] std::int64_t parity_dim(std::int64_t call) const { return head_dim_ - 2 + call % 2; }
  /// Columns of a code that a row sees under the mask, for every row.
  [[nodiscard]] std::vector<std::int64_t> visible(std::int64_t b, std::int64_t mask_head, const Code& code) const;
  void inspect_row(std::int64_t call, std::int64_t b, std::int64_t head, std::int64_t row, const float* out, float lse,
                   const std::vector<std::vector<std::int64_t>>& expected);
  void find(Contamination finding);

  const ColumnMask& mask_;
  std::int64_t columns_, query_heads_, kv_heads_, head_dim_, windows_ = 1, calls_ = 2;
  std::vector<std::vector<Code>> codes_;  ///< by batch row
  std::vector<Contamination> findings_;
};

}  // namespace flashmask::overlap
