// SPDX-License-Identifier: Apache-2.0
//
// The lock table in a file, so that it survives the control plane. Each LOCK is appended before it is sent,
// and each change before the client has its reply. The file is written anew when most of its records are
// obsolete. Not synchronized with the disk: what a loss of power takes is said in deploy/docs/limits.md.
//
// A record is its length, its CRC-32 and its content, in XDR. A last one that is cut short is one that was being written:
// nobody has been told. One thread, the lock proxy's.
#pragma once

#include <cstdint>
#include <string>

#include "controlplane/locks/table.h"
#include "dataplane/xdr/cursor.h"

namespace sluice::locks {

/// A file is written anew when it is this long, and twice as long as the last new one.
inline constexpr std::size_t kCompactBytes = 1u << 20;
/// Between attempts to write to a file that could not be written.
inline constexpr std::uint64_t kWriteAgainNs = 10'000'000'000;

class Journal final : public TableObserver {
 public:
  /// Opens the file, or makes it. Throws SetupError.
  explicit Journal(std::string path);
  ~Journal() override;
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  /// Restores what the file has, and writes it anew. Logs what is lost.
  void load(Table& table);
  /// Writes the file anew if it is time.
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
  bool quiet_ = false;  ///< while it is read
  bool broken_ = false;
  Bytes unwritten_;  ///< owners, which are written together with the next record
  std::size_t bytes_ = 0;
  std::size_t snapshot_bytes_ = 0;
  std::uint64_t again_ns_ = 0;
};

}  // namespace sluice::locks
