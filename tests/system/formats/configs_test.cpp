// The configurations of released models: what their comments promise is what `plan` computes from
// the published sizes, and `plan` on a model without weights.

#include <filesystem>
#include <regex>

#include "system/program/program_rig.h"

namespace caravan::test {
namespace {

namespace fs = std::filesystem;

const std::string kConfigs = std::string(CARAVAN_SOURCE_DIR) + "/configs/";
const std::string kArchitectures = std::string(CARAVAN_TEST_DATA) + "/architectures/";

/// Billions of parameters, as published (of vision models without the tile positions that no image
/// has).
const std::map<std::string, std::string> kReleases = {
    {"llama-2-7b", "6.74"},           {"llama-2-13b", "13.02"},
    {"llama-2-70b", "68.98"},         {"llama-3-8b", "8.03"},
    {"llama-3-70b", "70.55"},         {"llama-3.1-8b", "8.03"},
    {"llama-3.1-70b", "70.55"},       {"llama-3.1-405b", "405.85"},
    {"llama-3.2-1b", "1.24"},         {"llama-3.2-3b", "3.21"},
    {"llama-3.3-70b", "70.55"},       {"llama-3.2-11b-vision", "10.61"},
    {"llama-3.2-90b-vision", "88.54"}};

ProcessResult plan(const Arguments& arguments) {
  Arguments command = {"plan"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return caravan(command);
}

/// `plan` as the comment of a configuration says it, on the architecture file of its model.
ProcessResult plan_of_comment(const std::string& release, const std::string& text) {
  std::smatch line;
  EXPECT_TRUE(std::regex_search(text, line, std::regex("# +caravan plan (.*)\n")));
  std::istringstream words(line[1]);
  Arguments arguments;
  for (std::string word; words >> word;) {
    if (word == "config.json") word = kArchitectures + release + ".json";
    if (word == "configs/" + release + ".ini") word = kConfigs + release + ".ini";
    arguments.push_back(word);
  }
  return plan(arguments);
}

/// Lines of a table from its heading to the first line without text, each behind `prefix`.
Arguments table_rows(const std::string& text, const std::string& prefix) {
  Arguments rows;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const bool heading = line.starts_with(prefix + "ranks query heads");
    if (rows.empty() && !heading) continue;
    if (line.size() <= prefix.size() || !line.starts_with(prefix)) break;
    rows.push_back(line.substr(prefix.size()));
  }
  return rows;
}

double gib(const std::string& number, const std::string& unit) {
  return std::stod(number) * (unit == "TiB" ? 1024 : unit == "MiB" ? 1.0 / 1024 : 1);
}

/// Total of a rank in GiB, by number of ranks.
std::map<int, double> totals(const Arguments& rows) {
  std::map<int, double> found;
  const std::regex row(" *([0-9]+) .* ([0-9.]+) ([KMGT]iB)   [0-9a-z]+.*");
  std::smatch match;
  for (const std::string& line : rows) {
    if (std::regex_match(line, match, row)) found[std::stoi(match[1])] = gib(match[2], match[3]);
  }
  return found;
}

int first_number(const std::string& text, const std::string& pattern) {
  std::smatch match;
  EXPECT_TRUE(std::regex_search(text, match, std::regex(pattern))) << pattern;
  return match.empty() ? 0 : std::stoi(match[1]);
}

TEST(Configs, EveryReleaseHasOne) {
  std::map<std::string, bool> found;
  for (const auto& entry : fs::directory_iterator(kConfigs)) {
    const std::string release = entry.path().stem().string();
    if (release.starts_with("llama")) found[release] = kReleases.contains(release);
  }
  EXPECT_EQ(found.size(), kReleases.size());
  for (const auto& [release, known] : found) EXPECT_TRUE(known) << release;
}

TEST(Configs, SayWhatPlanComputes) {
  for (const auto& [release, parameters] : kReleases) {
    SCOPED_TRACE(release);
    const std::string text = read_whole(kConfigs + release + ".ini");
    const ProcessResult result = plan_of_comment(release, text);
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_NE(result.out.find("  " + parameters + " billion parameters"), std::string::npos)
        << result.out;
    const Arguments rows = table_rows(text, "# ");
    EXPECT_GE(rows.size(), 6U);
    EXPECT_EQ(rows, table_rows(result.out, "")) << "tests/system/formats/update_configs.py";

    const std::map<int, double> needs = totals(rows);
    const int nodes = first_number(text, "# Launch:.* --nodes=([0-9]+) ");
    const int on_a_node = first_number(text, "# Launch:.* --ntasks-per-node=([0-9]+) ");
    EXPECT_EQ(nodes, first_number(text, "([0-9]+) nodes? of [0-9]+ GB"));
    EXPECT_LE(needs.at(nodes * on_a_node) * on_a_node,
              0.9 * first_number(text, "[0-9]+ nodes? of ([0-9]+) GB"));
    const std::string verdict = nodes == 1 ? "they fit on one" : "over " + std::to_string(nodes);
    EXPECT_NE(result.out.find(verdict), std::string::npos) << result.out;
    const std::regex gpus("([0-9]+) GPUs? of ([0-9]+) GB");
    int choices = 0;
    for (std::sregex_iterator i(text.begin(), text.end(), gpus), end; i != end; ++i, ++choices) {
      EXPECT_LE(needs.at(std::stoi((*i)[1])), 0.9 * std::stod((*i)[2])) << (*i)[0];
    }
    EXPECT_GE(choices, 1);
  }
}

TEST(Configs, AreValidForARun) {
  for (const auto& entry : fs::directory_iterator(kConfigs)) {
    const ProcessResult result =
        caravan({"run", "--config", entry.path().string(), "--print-config"});
    EXPECT_EQ(result.code, 0) << entry.path() << ": " << result.err;
  }
}

TEST(PlanWithoutWeights, ReadsMetasFileAsHuggingFaces) {
  for (const std::string release :
       {"llama-2-7b", "llama-2-13b", "llama-2-70b", "llama-3-8b", "llama-3-70b", "llama-3.1-8b",
        "llama-3.1-70b", "llama-3.1-405b", "llama-3.2-1b", "llama-3.2-3b", "llama-3.2-11b-vision",
        "llama-3.2-90b-vision", "llama-3.3-70b"}) {
    SCOPED_TRACE(release);
    const auto of = [](const std::string& file) {
      const ProcessResult result = plan({"--model", kArchitectures + file, "--ranks", "16",
                                         "--threads", "4", "--node-memory", "512G"});
      EXPECT_EQ(result.code, 0) << result.err;
      return result.out.substr(result.out.find('\n'));  // names and types of the files differ
    };
    EXPECT_EQ(of(release + ".params.json"), of(release + ".json"));
  }
}

// Meta's 405B for 16 GPUs names 16 key-value heads, which are 8, each twice.
TEST(PlanWithoutWeights, CountsCopiedHeadsOnce) {
  const TemporaryFolder folder;
  std::string params = read_whole(kArchitectures + "llama-3.1-405b.params.json");
  const std::string heads = "\"n_kv_heads\": 8";
  ASSERT_NE(params.find(heads), std::string::npos);
  params.replace(params.find(heads), heads.size(), "\"n_kv_heads\": 16");
  folder.write("params.json", params);
  const auto of = [](const std::string& file) {
    const ProcessResult result =
        plan({"--model", file, "--ranks", "16", "--threads", "4", "--node-memory", "512G"});
    EXPECT_EQ(result.code, 0) << result.err;
    return result.out.substr(result.out.find('\n'));
  };
  EXPECT_EQ(of(folder.file("params.json")), of(kArchitectures + "llama-3.1-405b.params.json"));
}

TEST(PlanWithoutWeights, TakesAFolderAndAnotherType) {
  const TemporaryFolder folder;
  fs::create_directory(folder.file("Some-Model"));
  folder.write("Some-Model/config.json", read_whole(kArchitectures + "llama-3.2-1b.json"));
  const auto with_dtype = [&](const std::string& dtype) {
    return plan({"--model", folder.file("Some-Model"), "--dtype", dtype, "--threads", "1",
                 "--node-memory", "64G"});
  };
  const ProcessResult half = with_dtype("auto");
  ASSERT_EQ(half.code, 0) << half.err;
  EXPECT_NE(half.out.find("Some-Model"), std::string::npos);
  EXPECT_NE(half.out.find("planned as bf16"), std::string::npos);
  EXPECT_NE(half.out.find(" 2.30 GiB "), std::string::npos) << half.out;
  const ProcessResult whole = with_dtype("fp32");
  EXPECT_NE(whole.out.find("planned as fp32"), std::string::npos);
  EXPECT_NE(whole.out.find(" 4.60 GiB "), std::string::npos) << whole.out;
}

TEST(PlanWithoutWeights, SaysWhatDoesNotFit) {
  const ProcessResult result = plan({"--model", kArchitectures + "llama-3.1-70b.json", "--ranks",
                                     "2", "--threads", "8", "--node-memory", "64G"});
  EXPECT_EQ(result.code, 78);
  EXPECT_NE(result.out.find("fits in"), std::string::npos) << "the table helps to choose";
  EXPECT_NE(result.err.find("rank 0 needs"), std::string::npos) << result.err;
}

TEST(PlanWithoutWeights, RefusesWhatItCannotPlan) {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& content, int code, const std::string& part) {
    const std::string file = folder.write("model.json", content);
    const ProcessResult result = plan({"--model", file});
    EXPECT_EQ(result.code, code) << result.err;
    EXPECT_NE(result.err.find(part), std::string::npos) << result.err;
  };
  refused("{}", 65, "describes no model");
  refused("[1]", 65, "object");
  refused("{\"hidden_size\": 4096", 65, "JSON");
  refused(R"({"model_type": "qwen2", "hidden_size": 64})", 65, "another architecture");
  refused(R"({"dim": 4096, "n_layers": 32, "n_heads": 32, "moe": {}})", 65, "mixture");
  refused("version https://git-lfs.github.com/spec/v1\n", 65, "git lfs pull");
  EXPECT_EQ(plan({"--model", folder.file("absent.json")}).code, 66);
  const std::string architecture = kArchitectures + "llama-3.2-1b.json";
  const ProcessResult with_input = plan({"--model", architecture, "--input", "prompts.jsonl"});
  EXPECT_EQ(with_input.code, 64);
  EXPECT_NE(with_input.err.find("MODEL.h5"), std::string::npos) << with_input.err;
  const ProcessResult run =
      caravan({"run", "--model", architecture, "--prompt", "x", "--log-level", "error"});
  EXPECT_EQ(run.code, 78);
  EXPECT_NE(run.err.find("caravan convert"), std::string::npos) << run.err;
}

class PlanOfACheckpoint : public ProgramTest {};

TEST_F(PlanOfACheckpoint, HasTheTableToo) {
  const ProcessResult result = plan({"--model", model(), "--ranks", "3", "--max-tokens", "20"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(table_rows(result.out, "").size(), 7U) << result.out;
  EXPECT_NE(result.out.find("The run can start"), std::string::npos);
  const ProcessResult other = plan({"--model", model(), "--dtype", "bf16"});
  EXPECT_EQ(other.code, 64);
  EXPECT_NE(other.err.find("--dtype"), std::string::npos) << other.err;
}

}  // namespace
}  // namespace caravan::test
