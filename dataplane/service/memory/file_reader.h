// SPDX-License-Identifier: Apache-2.0
//
// Service of NFS version 3 on a reactor that does not own the files. It answers the procedures that change
// nothing from what the owner publishes, and gives all other calls to the owner.
//
// The reader never waits: what it cannot read consistently in a few attempts goes to the owner. It belongs to
// the reactor of its calls; the constructor runs at setup, on the main thread. The owner's service, the
// service for the owner, and the regions outlive it. Errors are nfsstat3 in replies.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "dataplane/service/api/service.h"
#include "dataplane/service/memory/block_readers.h"
#include "dataplane/service/memory/exports.h"
#include "dataplane/service/memory/memory_service.h"
#include "dataplane/service/memory/read_procedures.h"

namespace sluice::service::memory {

/// Maximum attempts to read what the owner is changing, before the owner gets the call.
inline constexpr int kReadAttempts = 8;

/// Published inodes and pinned blocks, for the procedures that a reader shares with the owner.
class PublishedFiles {
 public:
  /// Copy of a published inode.
  struct Object {
    InodeNumber number = 0;
    std::uint32_t sequence = 0;
    FileAttributes copy;  ///< set by load()

    Object() noexcept {}  // NOLINT: the copy stays uninitialized until load()
    const FileAttributes& attributes() const noexcept { return copy; }
  };

  PublishedFiles(const FileSystem& fs, std::vector<std::uint64_t>& tokens)
      : fs_(fs), tokens_(tokens), pins_(fs.blocks().numbers()) {}

  /// Lets the reader use what `publication` shows. Called at setup.
  void start(const Publication& publication) noexcept { publication_ = &publication; }
  ReaderPins& pins() noexcept { return pins_; }

  // For ReadProcedures.
  bool load(InodeNumber number, Object& object) const noexcept;
  bool confirm(const Object& object) const noexcept {
    return publication_->is_unchanged(object.number, object.sequence);
  }
  bool root(std::uint32_t export_id, PublishedRoot& root) const noexcept {
    return export_id < kMaxExports && publication_->read_root(export_id, root);
  }
  bool applies(std::uint32_t export_id, const PublishedRoot& root) const noexcept {
    return tokens_[export_id] == root.token;
  }
  NameResult lookup(InodeNumber directory, std::string_view name, Object& found) const noexcept;
  /// Returns false if the access time has to be set, which only the owner can do.
  bool note_read(const Object& file) const noexcept {
    return !needs_access_time(file.attributes(), fs_.now_ns());
  }
  bool pin(Call& call, const Object& file, std::uint64_t offset, std::uint32_t bytes) noexcept;
  static const Block* pinned(Call& call) noexcept;

  /// Releases the blocks that a call has pinned. Returns false if it has pinned none.
  bool unpin(Call& call) noexcept;

 private:
  const FileSystem& fs_;
  const Publication* publication_ = nullptr;
  const std::vector<std::uint64_t>& tokens_;  ///< of the exports' paths, by index
  ReaderPins pins_;
};

class FileReader final : public Service {
 public:
  /// Keys of the owner's memory on this reactor's device.
  struct Keys {
    rdma::Lkey data;
    rdma::Lkey zeros;
  };

  /// Lets `owner` publish its files for this reader. `to_owner` executes calls on the owner's reactor. Called
  /// at setup, before any call. Throws SetupError.
  FileReader(MemoryService& owner, Service& to_owner, const Keys& keys);

  const service::Binding& binding() const noexcept override { return to_owner_.binding(); }
  Placement place(Call& call) noexcept override { return to_owner_.place(call); }
  Execution execute(Call& call) noexcept override;
  void release(Call& call) noexcept override;
  void call_abandoned(Call& call) noexcept override { to_owner_.call_abandoned(call); }
  void client_gone(Client& client) noexcept override { to_owner_.client_gone(client); }
  /// Confirms grace periods of the blocks. Called between two calls.
  bool background(std::uint64_t now_ns) noexcept override;

  /// Swaps in `exports` between loop iterations and returns the old ones in the same vector, so that nothing
  /// is freed here.
  void exchange_exports(std::vector<ExportOptions>& exports) noexcept;
  /// Returns what this reader has answered for an export, or with kNoExport for handles of none. Any thread.
  const ExportStatistics& statistics(std::size_t export_id) const noexcept { return statistics_[export_id]; }
  /// Returns how many calls that change nothing were given to the owner. Any thread.
  std::uint64_t given_to_owner() const noexcept { return given_to_owner_.get(); }
  ReaderPins& pins() noexcept { return files_.pins(); }

 private:
  ReadContext context_of(const MemoryService& owner, const Keys& keys) noexcept;
  void set_tokens() noexcept;

  Service& to_owner_;
  const FileSystem& fs_;
  const BlockReaders& periods_;
  std::vector<ExportOptions> exports_;
  std::vector<std::uint64_t> tokens_;
  std::vector<ExportStatistics> statistics_;
  PublishedFiles files_;
  const ReadContext context_;
  SharedCount given_to_owner_;
};

}  // namespace sluice::service::memory
