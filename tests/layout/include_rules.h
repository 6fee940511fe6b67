#pragma once
// The rules of modules.txt as a checker: reads #include lines and says which of them the table does
// not allow.
//
// Leaves out: where the files lie (layout_test.cpp walks the source tree).

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace caravan::layout {

enum class IncludeForm { kAngled, kQuoted };

/// One `#include` line.
struct Include {
  int line = 0;
  IncludeForm form = IncludeForm::kAngled;
  std::string header;
};

/// The `#include` lines of a source text.
std::vector<Include> scan_includes(const std::string& text);

/// Module of a header "caravan/<module>/..."; empty for any other.
std::optional<std::string> module_of_header(const std::string& header);

class ModuleTable {
 public:
  /// @throws std::runtime_error naming the line that cannot be read, or a name that is declared
  /// nowhere.
  static ModuleTable parse(const std::string& text);

  bool has_module(const std::string& module) const { return rows_.contains(module); }

  /// Why a file of `module` may not have this `#include`, or empty. A quoted header outside
  /// "caravan/" that belongs to no library is a private one of the module's own folder.
  std::optional<std::string> fault(const std::string& module, const Include& include) const;

  /// Modules that each module may include, itself not among them.
  std::map<std::string, std::set<std::string>> graph() const;

 private:
  struct Row {
    std::set<std::string> modules;  // wholly allowed
    std::set<std::string> headers;  // single headers, "model/config.h"
    std::set<std::string> libraries;
  };

  void add_module(const std::string& line);
  void check_names() const;
  std::optional<std::string> library_of(const std::string& header) const;

  std::map<std::string, Row> rows_;
  std::map<std::string, std::vector<std::string>> libraries_;  // name -> prefixes
  std::vector<std::string> anywhere_;                          // prefixes
};

/// The nodes of one cycle, first one repeated at the end, or empty when there is none.
std::vector<std::string> find_cycle(const std::map<std::string, std::set<std::string>>& graph);

}  // namespace caravan::layout
