// Speed of tokenizers on one thread: the whole text in one call, repeated for some seconds; the
// best repetition counts. compare_tokenizers.sh sets the figures beside those of other libraries.
//
//   bench_tokenizer TEXT_FILE SECONDS TOKENIZER_FILE...
//
// Prints a line for each tokenizer: file, characters, tokens, million characters per second, and a
// checksum of the ids, which is equal where the ids are.

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <fstream>
#include <iostream>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "caravan/core/error.h"
#include "caravan/text/tokenizer.h"

namespace {

using namespace caravan;
using Ids = std::vector<std::int32_t>;

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  CARAVAN_CHECK(file, IoError, "cannot read {}", path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// Llama 3's files have no other place for it than the model's own size.
constexpr std::int64_t kLlama3Specials = 256;

text::TokenizerSpec read_tokenizer(const std::string& path) {
  const std::string content = read_file(path);
  if (path.ends_with(".json")) return text::tokenizer_from_hf_json(content, "");
  const auto lines = std::count(content.begin(), content.end(), '\n');
  const bool is_text = content.find('\0') == std::string::npos;
  return is_text ? text::tokenizer_from_tiktoken(content, lines + kLlama3Specials)
                 : text::tokenizer_from_sentencepiece(content);
}

std::int64_t count_characters(const std::string& text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; });
}

/// Fowler-Noll-Vo over the ids as 32-bit words.
std::uint64_t checksum(const Ids& ids) {
  std::uint64_t hash = 0xCBF29CE484222325U;
  for (const std::int32_t id : ids) hash = (hash ^ static_cast<std::uint32_t>(id)) * 0x100000001B3U;
  return hash;
}

void measure(const std::string& path, const std::string& text, double seconds) {
  const text::Tokenizer tokenizer(read_tokenizer(path));
  using Clock = std::chrono::steady_clock;
  using Seconds = std::chrono::duration<double>;
  double best = std::numeric_limits<double>::max();
  Ids ids;
  const auto start = Clock::now();
  while (best == std::numeric_limits<double>::max() ||
         Seconds(Clock::now() - start).count() < seconds) {
    const auto begin = Clock::now();
    ids = tokenizer.encode(text);
    best = std::min(best, Seconds(Clock::now() - begin).count());
  }
  const std::int64_t characters = count_characters(text);
  std::cout << fmt::format("{}\t{}\t{}\t{:.2f}\t{:016x}\n", path, characters, ids.size(),
                           static_cast<double>(characters) / best / 1e6, checksum(ids))
            << std::flush;
}

double parse_seconds(const std::string& text) {
  double seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  CARAVAN_CHECK(error == std::errc() && end == text.data() + text.size() && seconds > 0, UsageError,
                "SECONDS must be a number above 0, found \"{}\"", text);
  return seconds;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  try {
    CARAVAN_CHECK(arguments.size() >= 3, UsageError,
                  "usage: bench_tokenizer TEXT_FILE SECONDS TOKENIZER_FILE...");
    const std::string text = read_file(arguments[0]);
    const double seconds = parse_seconds(arguments[1]);
    for (std::size_t i = 2; i < arguments.size(); ++i) measure(arguments[i], text, seconds);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
