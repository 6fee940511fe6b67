#include "include_rules.h"

#include <algorithm>
#include <regex>
#include <sstream>
#include <stdexcept>

namespace caravan::layout {
namespace {

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

bool starts_with_any(const std::string& header, const std::vector<std::string>& prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](const std::string& prefix) { return header.starts_with(prefix); });
}

/// <vector>, <cstdint>: neither a path nor a suffix.
bool is_standard(const std::string& header) { return header.find_first_of("/.") == header.npos; }

/// Depth-first search; `path` holds the nodes from the root to `node`.
bool visit(const std::map<std::string, std::set<std::string>>& graph, const std::string& node,
           std::vector<std::string>& path, std::set<std::string>& finished) {
  const auto again = std::find(path.begin(), path.end(), node);
  if (again != path.end()) {
    path.erase(path.begin(), again);
    path.push_back(node);
    return true;
  }
  const auto edges = graph.find(node);
  if (edges == graph.end() || finished.contains(node)) return false;
  path.push_back(node);
  for (const std::string& next : edges->second) {
    if (visit(graph, next, path, finished)) return true;
  }
  path.pop_back();
  finished.insert(node);
  return false;
}

}  // namespace

std::vector<Include> scan_includes(const std::string& text) {
  static const std::regex pattern(R"(^\s*#\s*include\s*([<"])([^>"]+)[>"])");
  std::vector<Include> includes;
  std::istringstream stream(text);
  std::string line;
  for (int number = 1; std::getline(stream, line); ++number) {
    std::smatch match;
    if (!std::regex_search(line, match, pattern)) continue;
    const auto form = match[1].str() == "<" ? IncludeForm::kAngled : IncludeForm::kQuoted;
    includes.push_back({number, form, match[2].str()});
  }
  return includes;
}

std::optional<std::string> module_of_header(const std::string& header) {
  const std::string root = "caravan/";
  const auto slash = header.find('/', root.size());
  if (!header.starts_with(root) || slash == header.npos) return std::nullopt;
  return header.substr(root.size(), slash - root.size());
}

ModuleTable ModuleTable::parse(const std::string& text) {
  ModuleTable table;
  std::istringstream stream(text);
  std::string line;
  for (int number = 1; std::getline(stream, line); ++number) {
    const std::vector<std::string> words = words_of(line.substr(0, line.find('#')));
    if (words.empty()) continue;
    if (words[0] == "library" && words.size() > 2) {
      table.libraries_[words[1]] = {words.begin() + 2, words.end()};
    } else if (words[0] == "anywhere" && words.size() > 1) {
      table.anywhere_.insert(table.anywhere_.end(), words.begin() + 1, words.end());
    } else if (words[0] == "module" && std::count(words.begin(), words.end(), ":") == 2) {
      table.add_module(line);
    } else {
      throw std::runtime_error("module table, line " + std::to_string(number) + ": cannot read '" +
                               line + "'");
    }
  }
  table.check_names();
  return table;
}

void ModuleTable::add_module(const std::string& line) {
  const auto first = line.find(':');
  const auto second = line.find(':', first + 1);
  Row row;
  for (const std::string& word : words_of(line.substr(first + 1, second - first - 1))) {
    (word.find('/') == word.npos ? row.modules : row.headers).insert(word);
  }
  const std::vector<std::string> libraries = words_of(line.substr(second + 1));
  row.libraries = {libraries.begin(), libraries.end()};
  rows_[words_of(line)[1]] = row;
}

void ModuleTable::check_names() const {
  const auto edges = graph();
  for (const auto& [module, row] : rows_) {
    for (const std::string& other : edges.at(module)) {
      if (!rows_.contains(other)) {
        throw std::runtime_error("module " + module + " names an unknown module " + other);
      }
    }
    for (const std::string& library : row.libraries) {
      if (!libraries_.contains(library)) {
        throw std::runtime_error("module " + module + " names an unknown library " + library);
      }
    }
  }
}

std::optional<std::string> ModuleTable::library_of(const std::string& header) const {
  for (const auto& [name, prefixes] : libraries_) {
    if (starts_with_any(header, prefixes)) return name;
  }
  return std::nullopt;
}

std::optional<std::string> ModuleTable::fault(const std::string& module,
                                              const Include& include) const {
  const auto row = rows_.find(module);
  if (row == rows_.end()) return "module " + module + " has no row in the table";
  const std::string& header = include.header;
  if (const auto other = module_of_header(header)) {
    const std::string in_module = header.substr(std::string("caravan/").size());
    const bool allowed = *other == module || row->second.modules.contains(*other) ||
                         row->second.headers.contains(in_module);
    if (allowed) return std::nullopt;
    return module + " may not include " + in_module;
  }
  if (header.find("..") != header.npos) return "leaves its folder";
  if (header.ends_with(".cpp")) return "is no header";
  if (is_standard(header) || starts_with_any(header, anywhere_)) return std::nullopt;
  if (const auto library = library_of(header)) {
    if (row->second.libraries.contains(*library)) return std::nullopt;
    return module + " may not use " + *library;
  }
  if (include.form == IncludeForm::kQuoted) return std::nullopt;
  return "belongs to no library of the table";
}

std::map<std::string, std::set<std::string>> ModuleTable::graph() const {
  std::map<std::string, std::set<std::string>> edges;
  for (const auto& [module, row] : rows_) {
    edges[module] = row.modules;
    for (const std::string& header : row.headers) {
      edges[module].insert(header.substr(0, header.find('/')));
    }
  }
  return edges;
}

std::vector<std::string> find_cycle(const std::map<std::string, std::set<std::string>>& graph) {
  std::set<std::string> finished;
  for (const auto& [node, unused] : graph) {
    (void)unused;
    std::vector<std::string> path;
    if (visit(graph, node, path, finished)) return path;
  }
  return {};
}

}  // namespace caravan::layout
