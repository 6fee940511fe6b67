// The source tree against the module table, and the rules against samples of what they must find.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "include_rules.h"

namespace caravan::layout {
namespace {

namespace fs = std::filesystem;

const fs::path kRoot = CARAVAN_SOURCE_DIR;

std::string read_file(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  if (!stream) throw std::runtime_error("cannot read " + path.string());
  return text.str();
}

ModuleTable project_table() {
  return ModuleTable::parse(read_file(kRoot / "tests/layout/modules.txt"));
}

bool is_source(const fs::path& path) {
  static const std::set<std::string> suffixes = {".h", ".cpp", ".inl", ".cu", ".cuh"};
  return suffixes.contains(path.extension().string());
}

struct SourceFile {
  std::string module;
  std::string name;  // relative to the root
  std::string text;
};

/// Sources of one folder of the tree, recursively.
std::vector<SourceFile> sources_below(const fs::path& folder, const std::string& module) {
  std::vector<SourceFile> files;
  for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder)) {
    if (!entry.is_regular_file() || !is_source(entry.path())) continue;
    const std::string name = fs::relative(entry.path(), kRoot).string();
    files.push_back({module, name, read_file(entry.path())});
  }
  return files;
}

/// Sources of all modules.
std::vector<SourceFile> module_sources() {
  std::vector<SourceFile> files;
  for (const char* parent : {"include/caravan", "src"}) {
    for (const auto& entry : fs::directory_iterator(kRoot / parent)) {
      if (!entry.is_directory()) continue;
      const fs::path folder = fs::path(parent) / entry.path().filename();
      for (auto& file : sources_below(folder, entry.path().filename().string())) {
        files.push_back(std::move(file));
      }
    }
  }
  return files;
}

TEST(Layout, EveryIncludeIsAllowedByTheModuleTable) {
  const ModuleTable table = project_table();
  const auto files = module_sources();
  ASSERT_GT(files.size(), 20U) << "found hardly any sources below " << kRoot;
  for (const SourceFile& file : files) {
    for (const Include& include : scan_includes(file.text)) {
      const auto fault = table.fault(file.module, include);
      EXPECT_FALSE(fault) << file.name << ":" << include.line << ": #include of " << include.header
                          << ": " << *fault << " (tests/layout/modules.txt)";
    }
  }
}

TEST(Layout, ModuleTableHasNoCycle) {
  EXPECT_EQ(find_cycle(project_table().graph()), std::vector<std::string>{});
}

TEST(Layout, IncludesBetweenModulesHaveNoCycle) {
  std::map<std::string, std::set<std::string>> graph;
  for (const SourceFile& file : module_sources()) {
    for (const Include& include : scan_includes(file.text)) {
      const auto other = module_of_header(include.header);
      if (other && *other != file.module) graph[file.module].insert(*other);
    }
  }
  EXPECT_EQ(find_cycle(graph), std::vector<std::string>{});
}

TEST(Layout, TestsIncludeNoSourceFileAndNobodyIncludesAllOfTorch) {
  auto files = module_sources();
  for (auto& file : sources_below("tests", "tests")) files.push_back(std::move(file));
  for (const SourceFile& file : files) {
    for (const Include& include : scan_includes(file.text)) {
      EXPECT_FALSE(include.header.ends_with(".cpp") ||
                   include.header.find("src/") != std::string::npos)
          << file.name << ":" << include.line << ": " << include.header;
      EXPECT_FALSE(include.header.starts_with("torch/"))
          << file.name << ":" << include.line
          << ": include ATen/core/Tensor.h and ATen/ops/x.h, not " << include.header;
    }
  }
}

// What the rules must find, on a table of three modules.

ModuleTable sample_table() {
  return ModuleTable::parse(
      "library MPI mpi.h\n"
      "library JSON nlohmann/\n"
      "anywhere unistd.h\n"
      "module core : : \n"
      "module low : core : MPI\n"
      "module high : low/plan.h core : JSON\n");
}

std::string fault_of(const std::string& module, const std::string& line) {
  const auto includes = scan_includes(line);
  if (includes.size() != 1) return "not one include";
  return sample_table().fault(module, includes[0]).value_or("");
}

TEST(ModuleTable, AllowsOwnLowerAndStandardHeaders) {
  EXPECT_EQ(fault_of("low", "#include \"caravan/low/plan.h\""), "");
  EXPECT_EQ(fault_of("low", "#include \"caravan/core/error.h\""), "");
  EXPECT_EQ(fault_of("low", "  #  include <vector>"), "");
  EXPECT_EQ(fault_of("low", "#include <unistd.h>"), "");
  EXPECT_EQ(fault_of("low", "#include <mpi.h>"), "");
  EXPECT_EQ(fault_of("low", "#include \"private_header.h\""), "");
  EXPECT_EQ(fault_of("high", "#include \"caravan/low/plan.h\""), "");
}

TEST(ModuleTable, RefusesHigherModulesAndForeignLibraries) {
  EXPECT_EQ(fault_of("low", "#include \"caravan/high/x.h\""), "low may not include high/x.h");
  EXPECT_EQ(fault_of("low", "#include <caravan/high/x.h>"), "low may not include high/x.h");
  EXPECT_EQ(fault_of("high", "#include \"caravan/low/detail.h\""),
            "high may not include low/detail.h");
  EXPECT_EQ(fault_of("core", "#include <mpi.h>"), "core may not use MPI");
  EXPECT_EQ(fault_of("low", "#include \"nlohmann/json.hpp\""), "low may not use JSON");
  EXPECT_EQ(fault_of("low", "#include <zlib.h>"), "belongs to no library of the table");
  EXPECT_EQ(fault_of("low", "#include \"../core/secret.h\""), "leaves its folder");
  EXPECT_EQ(fault_of("low", "#include \"other.cpp\""), "is no header");
  EXPECT_EQ(fault_of("new", "#include <vector>"), "module new has no row in the table");
}

TEST(ModuleTable, RefusesLinesAndNamesItDoesNotKnow) {
  EXPECT_THROW(ModuleTable::parse("modul core : :\n"), std::runtime_error);
  EXPECT_THROW(ModuleTable::parse("module core :\n"), std::runtime_error);
  EXPECT_THROW(ModuleTable::parse("module core : : MPI\n"), std::runtime_error);
  EXPECT_THROW(ModuleTable::parse("module core : other :\n"), std::runtime_error);
}

TEST(ScanIncludes, GivesLineNumbersAndSkipsOtherText) {
  const auto includes = scan_includes("// #include <a>\nint x;\n#include <b>\n#include \"c.h\"\n");
  ASSERT_EQ(includes.size(), 2U);
  EXPECT_EQ(includes[0].line, 3);
  EXPECT_EQ(includes[0].header, "b");
  EXPECT_EQ(includes[1].form, IncludeForm::kQuoted);
}

TEST(FindCycle, NamesTheModulesOfTheCycle) {
  EXPECT_EQ(find_cycle({{"a", {"b", "c"}}, {"b", {"c"}}, {"c", {}}}), std::vector<std::string>{});
  EXPECT_EQ(find_cycle({{"a", {"b"}}, {"b", {"c"}}, {"c", {"b"}}}),
            (std::vector<std::string>{"b", "c", "b"}));
}

}  // namespace
}  // namespace caravan::layout
