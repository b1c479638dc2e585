// SPDX-License-Identifier: Apache-2.0
//
// Validated copies of values that the other plane writes. The other plane may write anything at any moment,
// also between two reads of one word, so these functions return copies whose values are within the bounds of
// their type: strings are terminated, and numbers that are used as an index or a count are within their
// arrays. The meaning of a value is the writer's responsibility.
//
// The following values are validated where they are used: indices of rings (Ring in
// dataplane/base/spsc_ring.h), numbers of connections in hints, events and commands, private data and
// datagrams with their lengths, parts of properties, and client classes.
#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <optional>
#include <string>

#include "dataplane/base/seqlock.h"
#include "dataplane/segment/calls.h"
#include "dataplane/segment/config_block.h"
#include "dataplane/segment/tables.h"

namespace sluice::segment {

template <std::size_t N>
void end_text(char (&text)[N]) noexcept {
  text[N - 1] = '\0';
}

// --- Values that the control plane reads from the data plane

inline void bound(ExportInfo& info) noexcept {
  end_text(info.path);
  if (info.root_handle_bytes > kMaxHandleBytes) info.root_handle_bytes = 0;
}
inline void bound(PathAnswer& answer) noexcept {
  if (answer.handle_bytes > kMaxHandleBytes) answer.handle_bytes = 0;
}
inline void bound(MemoryTable& table) noexcept {
  for (MemoryInfo& info : table) end_text(info.what);
}
inline void bound(CaptureStatus& status) noexcept {
  end_text(status.end);
  end_text(status.problem);
  if (status.state > CaptureState::Failed) status.state = CaptureState::None;
}
inline void bound(ConnectionInfo& info) noexcept {
  if (info.state > ConnectionState::Closing) info.state = ConnectionState::Closing;
  if (info.client_class >= kMaxClasses) info.client_class = 0;
}

/// Returns a validated copy; nullopt if SeqLock::read() fails.
template <typename T>
std::optional<T> checked(const SeqLock<T>& shared) noexcept {
  std::optional<T> value = shared.read();
  if (value) bound(*value);
  return value;
}

inline ProcedureInfo checked(const ProcedureInfo& shared) noexcept {
  ProcedureInfo copy;
  std::memcpy(static_cast<void*>(&copy), static_cast<const void*>(&shared), sizeof copy);
  end_text(copy.program_name);
  end_text(copy.procedure_name);
  return copy;
}

// --- Values that the data plane reads from the control plane

/// Returns the first value that no control plane of this release would publish, as a sentence; empty if there
/// is none. The data plane rejects a configuration with a defect as a whole.
std::string defect_of(const ConfigBlock& config);

inline void bound(PathQuestion& question) noexcept {
  end_text(question.path);
}

}  // namespace sluice::segment
