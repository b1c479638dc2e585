// SPDX-License-Identifier: Apache-2.0
#include "controlplane/cm/entry_table.h"

namespace sluice::cm {

void EntryTable::set_remote(Entry& entry, std::uint32_t remote_id, std::uint32_t remote_qpn) {
  entry.remote_id = remote_id;
  entry.remote_qpn = remote_qpn;
  by_remote_id_[{entry.endpoint.remote, remote_id}] = &entry;
  by_remote_qpn_[{entry.endpoint.remote, remote_qpn}] = &entry;
}

void EntryTable::drop(Index& index, const RemoteKey& key, Id id) {
  const auto at = index.find(key);
  if (at != index.end() && at->second->id == id) index.erase(at);
}

void EntryTable::erase(Entry& entry) {
  drop(by_remote_id_, {entry.endpoint.remote, entry.remote_id}, entry.id);
  release_queue_pair(entry);
  entries_.erase(static_cast<std::uint32_t>(entry.id));
}

}  // namespace sluice::cm
