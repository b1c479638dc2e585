// SPDX-License-Identifier: Apache-2.0
//
// Journal of the lock table, so that locks survive a restart of the control plane. Each LOCK is appended
// before it is sent, and each change before the client gets its reply. The file is rewritten when most of its
// records are obsolete. It is not synchronized with the disk; deploy/docs/limits.md describes the effects of
// a power failure.
//
// A record consists of its length, its CRC-32 and its content, in XDR. A truncated last record was being
// written during a crash; its change was not reported to any client. Single-threaded; runs on the lock
// proxy's thread.
#pragma once

#include <cstdint>
#include <string>

#include "controlplane/locks/table.h"
#include "dataplane/xdr/cursor.h"

namespace sluice::locks {

/// Minimum size for a rewrite. The file must also be twice as large as after the last rewrite.
inline constexpr std::size_t kCompactBytes = 1u << 20;
/// Retry interval after a write failed.
inline constexpr std::uint64_t kWriteAgainNs = 10'000'000'000;

class Journal final : public TableObserver {
 public:
  /// Opens or creates the file. Throws SetupError.
  explicit Journal(std::string path);
  ~Journal() override;
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  /// Restores the table from the file and rewrites the file. Logs what is lost.
  void load(Table& table);
  /// Rewrites the file if it is large enough, or if a write failed.
  void maintain(const Table& table, std::uint64_t now_ns);

  void owner(const Owner& owner) override;
  void asked(std::uint32_t id, const Bytes& handle, const Range& range) override;
  void not_granted(std::uint32_t id, const Bytes& handle, const Range& range) override;
  void held(std::uint32_t id, const Bytes& handle, const Range& range) override;
  void freed(std::uint32_t id, const Bytes& handle, const Range& range) override;
  void leaving(std::uint32_t id) override;
  void notice(const NoticeTo& to, std::uint32_t state) override;

 private:
  enum Kind : std::uint32_t {
    kOwner = 1,
    kHeld = 2,
    kFreed = 3,
    kLeaving = 4,
    kNotice = 5,
    kAsked = 6,
    kNotGranted = 7
  };

  template <typename Encode>
  void append(Kind kind, const Encode& encode);
  void range_record(Kind kind, std::uint32_t id, const Bytes& handle, const Range& range);
  static bool replay(Table& table, xdr::Reader record);
  static bool replay_owner(Table& table, std::uint32_t id, xdr::Reader& record);
  static bool replay_range(Table& table, Kind kind, Owner& owner, xdr::Reader& record);
  void rewrite(const Table& table);
  void failed(const char* what);

  const std::string path_;
  int fd_ = -1;
  bool quiet_ = false;  ///< true while the file is replayed
  bool broken_ = false;
  Bytes unwritten_;  ///< owner records, which are written together with the next record
  std::size_t bytes_ = 0;
  std::size_t snapshot_bytes_ = 0;
  std::uint64_t again_ns_ = 0;
};

}  // namespace sluice::locks
