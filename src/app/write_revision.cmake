# Writes OUTPUT with the revision of SOURCE_DIR, only if it changed: run at every build, recompiles one file after a commit.
execute_process(COMMAND git -C "${SOURCE_DIR}" describe --always --dirty --abbrev=10
  OUTPUT_VARIABLE revision OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed OR revision STREQUAL "")
  set(revision "no revision: not built from a git checkout")
endif()
set(content "#pragma once\n\nnamespace caravan::app {\ninline constexpr const char* kRevision = \"${revision}\";\n}  // namespace caravan::app\n")
if(EXISTS "${OUTPUT}")
  file(READ "${OUTPUT}" old)
endif()
if(NOT content STREQUAL "${old}")
  file(WRITE "${OUTPUT}" "${content}")
endif()
