// SPDX-License-Identifier: Apache-2.0
//
// Looks at what the other plane has written, before it is used: it may write anything, at any moment, also between two
// looks at the same word. So all of these take a copy, and what they give is within the bounds of its type: texts have
// an end, numbers that index or count are within their arrays. What else a value says is the writer's business.
//
// Not here, since they are where the value is used: indices of rings (Ring in dataplane/base/spsc_ring.h), numbers of
// connections in hints, events and commands, private data and datagrams with their lengths, parts of properties, classes.
#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <optional>
#include <string>

#include "dataplane/base/seqlock.h"
#include "dataplane/segment/call_table.h"
#include "dataplane/segment/config_block.h"
#include "dataplane/segment/tables.h"

namespace sluice::segment {

template <std::size_t N>
void end_text(char (&text)[N]) noexcept {
  text[N - 1] = '\0';
}

// --- The control plane's looks at the data plane

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

/// None: as of SeqLock::read().
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

// --- The data plane's looks at the control plane

/// What in it no control plane of ours would have published; empty: nothing. The data plane takes all or none of a
/// configuration.
std::string defect_of(const ConfigBlock& config);

inline void bound(PathQuestion& question) noexcept {
  end_text(question.path);
}

}  // namespace sluice::segment
