// Runs a fuzz target without libFuzzer: over every file of the corpus folders, then over mutations
// of them. Mutation number N is the same in every run, so that a failure can be found again:
//
//   fuzz_NAME [--first=N] [--mutations=N] [--seconds=N] FOLDER...

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

constexpr std::size_t kMaxBytes = 1 << 20;

struct Options {
  std::int64_t first = 0;
  std::int64_t mutations = 0;
  std::int64_t seconds = 60;
  std::vector<std::string> folders;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    const auto number = [&](std::string_view name, std::int64_t& value) {
      if (!argument.starts_with(name)) return false;
      const char* end = argument.data() + argument.size();
      const auto [stop, error] = std::from_chars(argument.data() + name.size(), end, value);
      if (error != std::errc() || stop != end || value < 0) {
        throw std::invalid_argument("expected a number: " + std::string(argument));
      }
      return true;
    };
    if (!number("--first=", options.first) && !number("--mutations=", options.mutations) &&
        !number("--seconds=", options.seconds)) {
      options.folders.emplace_back(argument);
    }
  }
  return options;
}

std::vector<std::string> read_corpus(const std::vector<std::string>& folders) {
  std::vector<std::filesystem::path> paths;
  for (const std::string& folder : folders) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.is_regular_file()) paths.push_back(entry.path());
    }
  }
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> inputs;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream bytes;
    bytes << file.rdbuf();
    if (!file) throw std::runtime_error("cannot read " + path.string());
    inputs.push_back(bytes.str());
  }
  if (inputs.empty()) throw std::runtime_error("the corpus is empty; expected folders with files");
  return inputs;
}

/// One to eight edits of one input; `number` decides all of them.
class Mutation {
 public:
  Mutation(const std::vector<std::string>& corpus, std::int64_t number)
      : corpus_(corpus), random_(static_cast<std::uint64_t>(number)) {}

  std::string make() {
    std::string input = corpus_[below(corpus_.size())];
    for (std::size_t edits = 1 + below(8); edits > 0; --edits) edit(input);
    if (input.size() > kMaxBytes) input.resize(kMaxBytes);
    return input;
  }

 private:
  std::size_t below(std::size_t bound) { return bound == 0 ? 0 : random_() % bound; }

  void edit(std::string& input) {
    const std::size_t place = below(input.size() + 1);
    const std::size_t length = below(std::min<std::size_t>(input.size() - place, 64) + 1);
    switch (below(10)) {
      case 0: flip(input); break;
      case 1: input.insert(place, 1, static_cast<char>(random_())); break;
      case 2: input.erase(place, length); break;
      case 3: input.insert(below(input.size() + 1), input.substr(place, length)); break;
      case 4: input.resize(place); break;
      case 5: splice(input, place); break;
      case 6: replace_number(input, place); break;
      case 7: repeat(input, place, length); break;
      case 8: overwrite_integer(input, place); break;
      case 9: nest(input, place); break;
      default: break;
    }
  }
  void flip(std::string& input) {
    if (input.empty()) return;
    char& byte = input[below(input.size())];
    byte = static_cast<char>(static_cast<unsigned char>(byte) ^ (1U << below(8)));
  }
  void splice(std::string& input, std::size_t place) {
    const std::string& other = corpus_[below(corpus_.size())];
    const std::size_t begin = below(other.size());
    input.replace(place, below(64), other.substr(begin, below(128)));
  }
  /// Digits at or behind `place` become a number that readers find hard.
  void replace_number(std::string& input, std::size_t place) {
    constexpr std::string_view kDigits = "0123456789";
    constexpr std::string_view kNumbers[] = {"-1",  "4294967295",          "2147483648", "1e999",
                                             "255", "9223372036854775808", "0.5"};
    const std::size_t begin = input.find_first_of(kDigits, place);
    if (begin == std::string::npos) return;
    const std::size_t end = std::min(input.find_first_not_of(kDigits, begin), input.size());
    input.replace(begin, end - begin, kNumbers[below(std::size(kNumbers))]);
  }

  /// Small counts mostly, and now and then what fills the input.
  std::size_t count() { return std::size_t{1} << below(18); }

  /// A piece (a bracket, a field, an entry of a list) many times.
  void repeat(std::string& input, std::size_t place, std::size_t length) {
    const std::string piece = input.substr(place, length);
    std::string many;
    for (std::size_t left = count(); left > 0 && many.size() < kMaxBytes; --left) many += piece;
    input.insert(place, many);
  }
  /// What stands where a binary format counts, sizes or points.
  void overwrite_integer(std::string& input, std::size_t place) {
    constexpr std::uint64_t kHard[] = {0,          1,          0x7f,       0xffff,     0x7fffffff,
                                       0xffffffff, 1ULL << 24, 1ULL << 40, ~0ULL >> 1, ~0ULL};
    const std::uint64_t value = kHard[below(std::size(kHard))];
    const std::size_t bytes = std::min(std::size_t{1} << below(4), input.size() - place);
    for (std::size_t i = 0; i < bytes; ++i) input[place + i] = static_cast<char>(value >> (8 * i));
  }
  /// Brackets around a piece, or only before it.
  void nest(std::string& input, std::size_t place) {
    constexpr std::string_view kBrackets[] = {"[", "{\"a\":", "(", "]}", "\x12\x0a", "}("};
    const std::string_view opening = kBrackets[below(std::size(kBrackets))];
    const std::size_t levels = count();
    if (opening == "[" && below(2) == 0)
      input.insert(place + below(input.size() - place + 1), std::string(levels, ']'));
    std::string many;
    for (std::size_t i = 0; i < levels && many.size() < kMaxBytes; ++i) many += opening;
    input.insert(place, many);
  }

  const std::vector<std::string>& corpus_;
  std::mt19937_64 random_;
};

void run(const std::string& input) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
}

}  // namespace

int main(int argc, char** argv) {
  std::string what = "the corpus";
  try {
    const Options options = parse(argc, argv);
    const std::vector<std::string> corpus = read_corpus(options.folders);
    for (const std::string& input : corpus) run(input);
    const auto start = std::chrono::steady_clock::now();
    std::int64_t done = 0;
    for (; done < options.mutations; ++done) {
      if (std::chrono::steady_clock::now() - start > std::chrono::seconds(options.seconds)) break;
      what = "mutation " + std::to_string(options.first + done);
      if (done % 1000 == 0) std::cout << what << std::endl;
      run(Mutation(corpus, options.first + done).make());
    }
    std::cout << corpus.size() << " inputs and " << done << " mutations" << std::endl;
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "at " << what << ": " << error.what() << "\n";
    return 1;
  }
}
