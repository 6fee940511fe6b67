#pragma once
// Standard input as a file that can be read again.

#include "caravan/batch/prompt_files.h"

namespace caravan::batch {

/// Copies standard input to a file in options.spool_folder that has no name, so that no killed run
/// leaves it behind.
/// @throws CannotCreateError, IoError; Error kTemporary within a second after
/// options.stop_requested.
io::InputFile spool_standard_input(const PromptFilesOptions& options);

/// @throws Error kTemporary if `stop_requested` (may be empty) says so; `doing` completes "stopped
/// while ...".
void throw_if_stopped(const std::function<bool()>& stop_requested, std::string_view doing);

}  // namespace caravan::batch
