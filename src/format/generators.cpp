// The workloads of docs/workloads.md, from the shipped data or from a rule.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <optional>
#include <utility>

#include "core/check.hpp"
#include "format/embedded_data.hpp"
#include "format/fields.hpp"
#include "format/workload.hpp"
#include "mask/random.hpp"

namespace flashmask::format {
namespace {

using core::check;
using core::fail;

constexpr std::int64_t kDefaultRows = 8192;
constexpr std::int64_t kShortDocument = 256;

/// The draws of one batch row: the same on every platform, independent of all other batch rows.
class Draws {
 public:
  Draws(std::uint64_t seed, std::int64_t batch_row) : key_{seed, batch_row, 0, 0} {}
  /// Uniform in [0, count).
  std::int64_t below(std::int64_t count) {
    ++key_.index;
    return mask::draw_below(count, key_);
  }
  /// Uniform in [0, 1).
  double unit() { return static_cast<double>(below(std::int64_t{1} << 53)) * 0x1.0p-53; }

 private:
  mask::DrawKey key_;
};

struct Bucket {
  std::int64_t low, high, documents;
};

/// Parses "low,high,documents" lines; '#' and the header line are skipped.
std::vector<Bucket> parse_histogram(std::string_view csv) {
  std::vector<Bucket> buckets;
  while (!csv.empty()) {
    const std::size_t end = csv.find('\n');
    const std::string_view line = csv.substr(0, end);
    csv.remove_prefix(end == std::string_view::npos ? csv.size() : end + 1);
    if (line.empty() || line.front() < '0' || line.front() > '9') continue;
    std::int64_t numbers[3] = {};
    const char* at = line.data();
    const char* stop = line.data() + line.size();
    for (std::int64_t& number : numbers) {
      at = std::from_chars(at, stop, number).ptr;
      if (at != stop) ++at;  // the comma
    }
    buckets.push_back({numbers[0], numbers[1], numbers[2]});
  }
  return buckets;
}

/// Arguments of a spec after the colon, and the row a generator call is to fill.
struct Call {
  std::string_view spec;
  std::string_view arguments;
  std::int64_t rows = 0;
  std::int64_t batch_row = 0;
  std::uint64_t seed = 0;
};

/// Splits "a,b,c" into exactly `count` integers, each in [1, kMaxTokens].
std::vector<std::int64_t> integers_of(const Call& call, std::size_t count, std::string_view form) {
  std::vector<std::int64_t> out;
  std::string_view rest = call.arguments;
  while (!rest.empty() && out.size() <= count) {
    std::int64_t value = 0;
    const auto [end, status] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
    const auto used = static_cast<std::size_t>(end - rest.data());
    const bool comma = used < rest.size() && rest[used] == ',';
    if (status != std::errc{} || (used != rest.size() && !comma) || (comma && used + 1 == rest.size())) {
      out.clear();
      break;
    }
    out.push_back(value);
    rest.remove_prefix(comma ? used + 1 : used);
  }
  check(out.size() == count, "workload {}: expected {} with integers", printable(call.spec), form);
  for (const std::int64_t value : out) {
    check(value >= 1 && value <= kMaxTokens, "workload {}: {} is outside [1, {}]", printable(call.spec), value,
          kMaxTokens);
  }
  return out;
}

void need_no_arguments(const Call& call) {
  check(call.arguments.empty(), "workload {}: this generator takes no arguments", printable(call.spec));
}

void need_pieces(const Call& call, std::int64_t pieces) {
  check(pieces <= kMaxPieces, "workload {}: more than {} documents in {} rows", printable(call.spec), kMaxPieces,
        call.rows);
}

/// Appends documents of `length()` tokens until the row is full; the last one is cut.
PackedRow fill(const Call& call, const std::function<std::int64_t()>& length) {
  PackedRow row;
  for (std::int64_t left = call.rows; left > 0;) {
    need_pieces(call, static_cast<std::int64_t>(row.documents.size()) + 1);
    const std::int64_t n = std::min(left, length());
    row.documents.push_back({n, {}, {}});
    left -= n;
  }
  return row;
}

PackedRow from_histogram(const Call& call, std::string_view csv) {
  need_no_arguments(call);
  const std::vector<Bucket> buckets = parse_histogram(csv);
  std::int64_t total = 0;
  for (const Bucket& bucket : buckets) total += bucket.documents;
  const std::int64_t cap = std::max<std::int64_t>(1, call.rows / 4);
  Draws random(call.seed, call.batch_row);
  return fill(call, [&] {
    std::int64_t ticket = random.below(total);
    std::size_t b = 0;
    while (ticket >= buckets[b].documents) ticket -= buckets[b++].documents;
    const double low = std::log(static_cast<double>(buckets[b].low));
    const double high = std::log(static_cast<double>(buckets[b].high + 1));
    const auto length = static_cast<std::int64_t>(std::exp(low + random.unit() * (high - low)));
    return std::min(cap, std::clamp(length, buckets[b].low, buckets[b].high));
  });
}

/// "pack:N[:i]": the rows, and which list of the size.
struct PackForm {
  std::int64_t rows = 0;
  std::optional<std::int64_t> index;
};

PackForm pack_form(const Call& call) {
  PackForm form;
  const char* at = call.arguments.data();
  const char* const end = at + call.arguments.size();
  auto result = std::from_chars(at, end, form.rows);
  bool parsed = result.ec == std::errc{} && form.rows >= 1 && form.rows <= kMaxTokens;
  if (parsed && result.ptr != end && *result.ptr == ':') {
    result = std::from_chars(result.ptr + 1, end, form.index.emplace());
    parsed = result.ec == std::errc{} && *form.index >= 0;
  }
  check(parsed && result.ptr == end, "workload {}: expected pack:N or pack:N:i with i >= 0 and 1 <= N <= {}",
        printable(call.spec), kMaxTokens);
  return form;
}

/// The lists of the next shorter size (8192 at least), scaled to the rows; the last document takes what is left over.
PackedRow from_pack(const Call& call) {
  const PackForm form = pack_form(call);
  const std::int64_t size = form.rows >= 131072 ? 131072 : form.rows >= 32768 ? 32768 : 8192;
  const Json packs = parse_json(kernel_packs_json(), "kernel_packs.json");
  const Json* list = packs.find(std::to_string(size));
  check(list != nullptr && list->array() != nullptr, "kernel_packs.json has no packs of {}", size);
  const auto count = static_cast<std::int64_t>(list->array()->size());
  check(!form.index || *form.index < count, "workload {}: pack {} of {} does not exist (counted from 0)",
        printable(call.spec), form.index.value_or(0), count);
  const auto index = static_cast<std::size_t>(form.index.value_or(call.batch_row) % count);
  PackedRow row;
  std::int64_t used = 0;
  for (const Json& pair : *(*list->array())[index].find("prefix_and_length")->array()) {
    const std::int64_t prefix = (*pair.integers())[0] * form.rows / size;
    const std::int64_t length = (*pair.integers())[1] * form.rows / size;
    check(prefix >= 1, "workload {}: {} rows are too few for the documents of a pack of {}", printable(call.spec),
          form.rows, size);
    row.documents.push_back({length, prefix, {}});
    used += length;
  }
  row.documents.back().length += form.rows - used;
  return row;
}

PackedRow equal(const Call& call) {
  const std::int64_t k = integers_of(call, 1, "equal:k")[0];
  check(k <= std::max<std::int64_t>(1, call.rows), "workload {}: more documents than the {} rows", printable(call.spec),
        call.rows);
  need_pieces(call, k);
  PackedRow row;
  for (std::int64_t d = 0; d < k; ++d) {
    row.documents.push_back({call.rows * (d + 1) / k - call.rows * d / k, {}, {}});
  }
  return row;
}

PackedRow one_long_and_short(const Call& call) {
  double fraction = 0;
  const char* end = call.arguments.data() + call.arguments.size();
  const auto [stop, status] = std::from_chars(call.arguments.data(), end, fraction);
  check(status == std::errc{} && stop == end && fraction > 0 && fraction <= 1,
        "workload {}: expected one_long+short:fraction with a fraction in (0, 1]", printable(call.spec));
  const auto length = std::max<std::int64_t>(1, static_cast<std::int64_t>(fraction * static_cast<double>(call.rows)));
  bool first = true;
  return fill(call, [&] { return std::exchange(first, false) ? length : kShortDocument; });
}

PackedRow prime_lengths(const Call& call) {
  need_no_arguments(call);
  const std::int64_t limit = std::clamp<std::int64_t>(call.rows / 4, 2, 4096);
  std::vector<std::int64_t> primes;
  for (std::int64_t n = 2; n <= limit; ++n) {
    bool prime = true;
    for (const std::int64_t p : primes) prime = prime && n % p != 0;
    if (prime) primes.push_back(n);
  }
  Draws random(call.seed, call.batch_row);
  return fill(call,
              [&] { return primes[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(primes.size())))]; });
}

PackedRow one_token_documents(const Call& call) {
  need_no_arguments(call);
  return fill(call, [] { return std::int64_t{1}; });
}

PackedRow grpo(const Call& call) {
  const auto arguments = integers_of(call, 3, "grpo:prompt,group,response");
  const std::int64_t prompt = arguments[0], group = arguments[1], response = arguments[2];
  need_pieces(call, group);
  PackedRow row;
  for (std::int64_t left = call.rows, pieces = 0; left > 0;) {
    masks::Document document;
    document.prefix = std::min(left, prompt);
    document.length = *document.prefix;
    left -= *document.prefix;
    for (std::int64_t g = 0; g < group && left > 0; ++g) {
      document.answers.push_back(std::min(left, response));
      document.length += document.answers.back();
      left -= document.answers.back();
      need_pieces(call, ++pieces);
    }
    need_pieces(call, ++pieces);
    row.documents.push_back(std::move(document));
  }
  return row;
}

struct TreeForm {
  std::int64_t depth, branch, length, nodes;
};

TreeForm tree_form(const Call& call) {
  const auto arguments = integers_of(call, 3, "tree:depth,branch,length");
  TreeForm form{arguments[0], arguments[1], arguments[2], 0};
  check(form.depth <= 1024, "workload {}: depth {} is outside [1, 1024]", printable(call.spec), form.depth);
  std::int64_t level = 1;
  for (std::int64_t d = 0; d < form.depth; ++d) {
    form.nodes += level;
    need_pieces(call, form.nodes);
    level *= form.branch;  // both factors were at most 2^24
    if (d + 1 < form.depth) need_pieces(call, level);
  }
  check(form.length <= kMaxTokens / form.nodes, "workload {}: {} nodes of {} tokens are more than {} tokens",
        printable(call.spec), form.nodes, form.length, kMaxTokens);
  return form;
}

/// Complete trees of `depth` levels, one after the other in depth-first order until the row is full.
PackedRow tree(const Call& call) {
  const TreeForm form = tree_form(call);
  PackedRow row;
  std::int64_t left = call.rows;
  struct Open {
    std::int64_t node, children;
  };
  std::vector<Open> path;
  while (left > 0) {
    while (!path.empty() && path.back().children == 0) path.pop_back();
    const auto parent = path.empty() ? std::nullopt : std::optional(path.back().node);
    if (!path.empty()) --path.back().children;
    const std::int64_t n = std::min(left, form.length);
    const auto node = static_cast<std::int64_t>(row.tree.size());
    need_pieces(call, node + 1);
    row.tree.push_back({parent, n});
    left -= n;
    const bool leaf = static_cast<std::int64_t>(path.size()) + 1 == form.depth;
    path.push_back({node, leaf ? 0 : form.branch});
  }
  return row;
}

struct Generator {
  GeneratorInfo info;
  std::string_view mask;  ///< the builder this workload is about
  PackedRow (*row)(const Call&);
};

const std::vector<Generator>& table() {
  static const std::vector<Generator> generators = {
      {{"histogram",
        "documents drawn from the shipped histogram of training documents, each at most a quarter of the rows"},
       "causal_document",
       [](const Call& call) { return from_histogram(call, doc_length_histogram_csv()); }},
      {{"wikipedia", "the same from the histogram of Wikipedia articles"},
       "causal_document",
       [](const Call& call) { return from_histogram(call, wikipedia_histogram_csv()); }},
      {{"pack:N[:i]",
        "pack i of the public kernel benchmark, of 8192, 32768 or 131072 tokens, scaled to N (without i: one a batch "
        "row)"},
       "causal_document",
       from_pack},
      {{"equal:k", "k documents of equal length (to within one token)"}, "causal_document", equal},
      {{"one_long+short:fraction", "one document of that fraction of the rows, then documents of 256 tokens"},
       "causal_document",
       one_long_and_short},
      {{"prime_lengths", "documents of prime lengths up to 4096, drawn at random; no tile boundary fits"},
       "causal_document",
       prime_lengths},
      {{"one_token_documents", "every token a document of its own"}, "causal_document", one_token_documents},
      {{"grpo:prompt,group,response", "prompts, each with a group of responses that see the prompt and themselves"},
       "share_question",
       grpo},
      {{"tree:depth,branch,length", "complete trees of shared prefixes with `length` tokens a node"},
       "prefix_tree",
       tree},
  };
  return generators;
}

std::string_view word_of(std::string_view text) {
  return text.substr(0, text.find_first_of(":["));
}

const Generator* find_generator(std::string_view spec) {
  for (const Generator& generator : table()) {
    if (word_of(generator.info.form) == word_of(spec)) return &generator;
  }
  return nullptr;
}

/// Rows of a generator whose spec decides them, else the default.
std::int64_t default_rows(const Generator& generator, const Call& call) {
  if (generator.row == from_pack) return pack_form(call).rows;
  if (generator.row == tree) {
    const TreeForm form = tree_form(call);
    return form.nodes * form.length;
  }
  return kDefaultRows;
}

}  // namespace

const std::vector<GeneratorInfo>& generators() {
  static const std::vector<GeneratorInfo> infos = [] {
    std::vector<GeneratorInfo> out;
    for (const Generator& generator : table()) out.push_back(generator.info);
    return out;
  }();
  return infos;
}

bool is_generator(std::string_view text) {
  return find_generator(text) != nullptr;
}

Workload generate(std::string_view spec, const GeneratorOptions& options) {
  const Generator* generator = find_generator(spec);
  if (generator == nullptr) {
    std::string forms;
    for (const GeneratorInfo& info : generators()) forms += core::format("{}{}", forms.empty() ? "" : ", ", info.form);
    fail(ErrorCode::invalid_argument, "workload {}: neither a file nor a known generator; known: {}", printable(spec),
         forms);
  }
  check(options.batch >= 1 && options.batch <= kMaxBatch, "batch must be in [1, {}], got {}", kMaxBatch, options.batch);
  check(options.rows >= 0 && options.rows <= kMaxTokens / options.batch,
        "rows must be in [0, {}] for batch = {}, got {}", kMaxTokens / options.batch, options.batch, options.rows);
  const std::size_t colon = spec.find(':');
  Call call{spec, colon == std::string_view::npos ? std::string_view() : spec.substr(colon + 1), options.rows, 0,
            options.seed};
  if (options.rows == 0 || generator->row == from_pack) call.rows = default_rows(*generator, call);
  check(options.rows == 0 || options.rows == call.rows,
        "workload {}: this pack has {} rows, but rows = {} is asked for", printable(spec), call.rows, options.rows);
  Workload workload;
  workload.name = std::string(spec);
  workload.mask = std::string(generator->mask);
  workload.rows = call.rows;
  for (std::int64_t b = 0; b < options.batch; ++b) {
    call.batch_row = b;
    workload.batch.push_back(generator->row(call));
  }
  validate(workload);
  return workload;
}

}  // namespace flashmask::format
