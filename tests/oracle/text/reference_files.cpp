#include "oracle/text/reference_files.h"

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "caravan/core/error.h"

namespace caravan::test {
namespace {

/// Values of the GGUF key-value section.
class GgufReader {
 public:
  explicit GgufReader(const std::filesystem::path& path) : file_(path, std::ios::binary) {}

  template <typename T>
  T number() {
    T value{};
    file_.read(reinterpret_cast<char*>(&value), sizeof value);
    CARAVAN_CHECK(file_, IoError, "GGUF file ends early");
    return value;
  }
  std::string string() {
    std::string value(number<std::uint64_t>(), '\0');
    file_.read(value.data(), static_cast<std::streamsize>(value.size()));
    CARAVAN_CHECK(file_, IoError, "GGUF file ends early");
    return value;
  }
  template <typename T, typename Read>
  std::vector<T> array(const Read& read) {
    number<std::uint32_t>();  // element type, known from the key
    std::vector<T> values;
    for (auto count = number<std::uint64_t>(); count > 0; --count) values.push_back(read());
    return values;
  }
  void skip(std::uint32_t type) {
    constexpr int kBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    if (type == kString) {
      string();
    } else if (type == kArray) {
      const auto inner = number<std::uint32_t>();
      for (auto count = number<std::uint64_t>(); count > 0; --count) skip(inner);
    } else {
      file_.ignore(kBytes[type]);
    }
  }

  static constexpr std::uint32_t kString = 8, kArray = 9;

 private:
  std::ifstream file_;
};

void read_value(GgufReader& reader, const std::string& key, std::uint32_t type, GgufText& result) {
  text::GgufTokenizer& tokenizer = result.tokenizer;
  const auto id = [&] { return static_cast<std::int32_t>(reader.number<std::uint32_t>()); };
  const std::string prefix = "tokenizer.ggml.";
  const auto is = [&](const char* name) { return key == prefix + name; };
  if (is("model")) {
    tokenizer.model = reader.string();
  } else if (is("pre")) {
    tokenizer.pre = reader.string();
  } else if (is("tokens")) {
    tokenizer.tokens = reader.array<std::string>([&] { return reader.string(); });
  } else if (is("merges")) {
    tokenizer.merges = reader.array<std::string>([&] { return reader.string(); });
  } else if (is("token_type")) {
    tokenizer.token_types = reader.array<std::int32_t>(id);
  } else if (is("scores")) {
    tokenizer.scores = reader.array<float>([&] { return reader.number<float>(); });
  } else if (is("add_space_prefix")) {
    tokenizer.add_space_prefix = reader.number<std::uint8_t>() != 0;
  } else if (is("bos_token_id")) {
    tokenizer.bos_id = id();
  } else if (is("eos_token_id")) {
    tokenizer.eos_id = id();
  } else if (is("unknown_token_id")) {
    tokenizer.unknown_id = id();
  } else if (is("add_bos_token")) {
    tokenizer.add_bos = reader.number<std::uint8_t>() != 0;
  } else if (key == "tokenizer.chat_template") {
    result.chat_template = reader.string();
  } else {
    reader.skip(type);
  }
}

}  // namespace

std::string read_text_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  CARAVAN_CHECK(file, IoError, "cannot read {}", path.string());
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::filesystem::path data_file(const std::string& name) {
  return std::filesystem::path(CARAVAN_TEST_DATA) / "text" / name;
}

std::vector<nlohmann::json> read_records(const std::string& name) {
  std::istringstream lines(read_text_file(data_file(name)));
  std::vector<nlohmann::json> records;
  for (std::string line; std::getline(lines, line);) {
    records.push_back(nlohmann::json::parse(line));
  }
  return records;
}

std::optional<std::filesystem::path> model_file(const std::string& name) {
  const char* folder = std::getenv("CARAVAN_MODELS_DIR");
  const auto path = std::filesystem::path(folder != nullptr ? folder : CARAVAN_MODELS_DIR) / name;
  if (!std::filesystem::exists(path)) return std::nullopt;
  return path;
}

GgufText read_gguf_text(const std::filesystem::path& path) {
  GgufReader reader(path);
  reader.number<std::uint32_t>();  // magic
  reader.number<std::uint32_t>();  // version
  reader.number<std::uint64_t>();  // tensors
  GgufText result;
  for (auto count = reader.number<std::uint64_t>(); count > 0; --count) {
    const std::string key = reader.string();
    const auto type = reader.number<std::uint32_t>();
    read_value(reader, key, type, result);
  }
  return result;
}

}  // namespace caravan::test
