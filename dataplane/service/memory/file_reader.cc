// SPDX-License-Identifier: Apache-2.0
//
// Access control, and the procedures of read_procedures.h for the owner of the files and for readers.
#include "dataplane/service/memory/file_reader.h"

#include <cstddef>

#include "dataplane/base/invariant.h"

namespace sluice::service::memory {
namespace {

/// Blocks that a call has pinned, in its state. What the service for the owner keeps there is shorter than
/// the offset of `count`, which is therefore zero for calls that the owner executes.
struct PinnedBlocks {
  Block blocks[kMaxTransferBlocks];
  std::byte unused[kCallStateBytes - sizeof(blocks) - sizeof(std::uint32_t)];
  std::uint32_t count;
};
static_assert(sizeof(PinnedBlocks) == kCallStateBytes);

}  // namespace

// --- Access --------------------------------------------------------------------------------------

bool is_served(const rpc::OpaqueAuth& credential) noexcept {
  if (credential.flavor == rpc::AuthFlavor::None) return true;
  return credential.flavor == rpc::AuthFlavor::Sys && rpc::decode_auth_sys(credential.body).ok;
}

Credential squash(const Call& call, const ExportOptions& options) noexcept {
  Credential credential{.uid = options.anonuid, .gid = options.anongid};
  if (call.header().credential.flavor != rpc::AuthFlavor::Sys || options.all_squash) return credential;
  const rpc::AuthSys sys = rpc::decode_auth_sys(call.header().credential.body).sys;
  const bool root = sys.uid == 0 && options.root_squash;
  if (root) return credential;
  const std::uint32_t root_gid = options.root_squash ? options.anongid : 0;
  credential.uid = sys.uid;
  credential.gid = sys.gid == 0 ? root_gid : sys.gid;
  credential.gid_count = sys.gid_count;
  for (std::uint32_t i = 0; i < sys.gid_count; ++i)
    credential.gids[i] = sys.gids[i] == 0 ? root_gid : sys.gids[i];
  return credential;
}

bool allows(const FileAttributes& file, const Credential& credential, std::uint16_t wanted) noexcept {
  if (credential.uid == 0) {
    // Root may do everything except execute a file without an execute bit.
    return (wanted & kExecute) == 0 || file.type == FileType::Directory || (file.mode & 0111) != 0;
  }
  std::uint16_t granted = file.mode & 7;
  if (credential.uid == file.uid)
    granted = file.mode >> 6 & 7;
  else if (in_group(credential, file.gid))
    granted = file.mode >> 3 & 7;
  return (granted & wanted) == wanted;
}

Status check_name(std::string_view name) noexcept {
  if (name.size() > kMaxNameBytes) return Status::NameTooLong;
  if (name.empty() || name.find('/') != std::string_view::npos || name.find('\0') != std::string_view::npos)
    return Status::Acces;
  return Status::Ok;
}

Status may_search(const FileAttributes& directory, const Credential& credential,
                  std::string_view name) noexcept {
  if (directory.type != FileType::Directory) return Status::NotDir;
  if (const Status status = check_name(name); status != Status::Ok) return status;
  return allows(directory, credential, kExecute) ? Status::Ok : Status::Acces;
}

// --- Files of the owner --------------------------------------------------------------------------

/// Inodes of the owner, for the procedures that it shares with readers.
class MemoryService::OwnFiles {
 public:
  struct Object {
    InodeNumber number = 0;
    const Inode* inode = nullptr;
    const FileAttributes& attributes() const noexcept { return *inode; }
  };

  explicit OwnFiles(FileSystem& fs) noexcept : fs_(fs) {}

  bool load(InodeNumber number, Object& object) const noexcept {
    object = {number, &fs_.inode(number)};
    return true;
  }
  bool confirm(const Object&) const noexcept { return true; }
  bool root(std::uint32_t export_id, PublishedRoot& root) const noexcept {
    const ExportUse& use = fs_.use(export_id);
    root = {use.root, use.root_token};
    return true;
  }
  bool applies(std::uint32_t, const PublishedRoot&) const noexcept { return true; }
  NameResult lookup(InodeNumber directory, std::string_view name, Object& found) const noexcept {
    const EntryNumber entry = fs_.lookup(directory, name);
    if (entry == 0) return NameResult::None;
    load(fs_.entry(entry).inode.own(), found);
    return NameResult::Found;
  }
  bool note_read(const Object& file) noexcept {
    const std::uint64_t now_ns = fs_.now_ns();
    if (needs_access_time(file.attributes(), now_ns)) fs_.change(file.number).atime_ns = now_ns;
    fs_.publish();
    return true;
  }
  /// Pins the blocks until the reply is sent.
  bool pin(Call& call, const Object& file, std::uint64_t offset, std::uint32_t bytes) noexcept {
    auto& transfer = call.state<Transfer>();
    SLUICE_INVARIANT_DEBUG(transfer.blocks == 0 && !transfer.writing, file_storage);
    transfer.inode = file.number;
    transfer.generation = file.inode->generation;
    transfer.offset = offset;
    transfer.bytes = bytes;
    if (bytes == 0) return true;
    const std::uint64_t last = (offset + bytes - 1) / kLargeBytes;
    for (std::uint64_t at = offset / kLargeBytes; at <= last; ++at) {
      const Block block = fs_.block_of(*file.inode, static_cast<std::uint32_t>(at));
      SLUICE_INVARIANT_DEBUG(transfer.blocks < kMaxTransferBlocks, table_index);
      transfer.pinned[transfer.blocks++] = block;
      if (block != 0) fs_.blocks().pin(block);
    }
    return true;
  }
  static const Block* pinned(Call& call) noexcept { return call.state<Transfer>().pinned; }

 private:
  FileSystem& fs_;
};

void MemoryService::read_only(Call& call, xdr::Reader&) noexcept {
  OwnFiles files(fs_);
  const bool executed = ReadProcedures(files, context_, call).execute();
  static_cast<void>(SLUICE_INVARIANT(executed, file_storage));
}

// --- Published files -----------------------------------------------------------------------------

bool PublishedFiles::load(InodeNumber number, Object& object) const noexcept {
  if (number == 0 || number > fs_.max_files()) return false;
  object.number = number;
  for (int i = 0; i < kReadAttempts; ++i)
    if (publication_->read(number, object.copy, object.sequence)) return true;
  return false;
}

NameResult PublishedFiles::lookup(InodeNumber directory, std::string_view name,
                                  Object& found) const noexcept {
  const std::uint32_t bucket = fs_.bucket_of(directory, name);
  for (int i = 0; i < kReadAttempts; ++i) {
    const std::uint32_t state = publication_->name(bucket);
    if ((state & 1) != 0) continue;
    InodeNumber number = 0;
    const NameResult result = fs_.look_up_published(bucket, directory, name, number);
    if (result == NameResult::Unknown) return result;
    if (result == NameResult::Found && !load(number, found)) return NameResult::Unknown;
    if (publication_->name_is(bucket, state)) return result;
  }
  return NameResult::Unknown;
}

bool PublishedFiles::pin(Call& call, const Object& file, std::uint64_t offset, std::uint32_t bytes) noexcept {
  if (bytes == 0) return true;
  auto& pinned = call.state<PinnedBlocks>();
  SLUICE_INVARIANT_DEBUG(pinned.count == 0, file_storage);
  const std::uint64_t last = (offset + bytes - 1) / kLargeBytes;
  for (std::uint64_t at = offset / kLargeBytes; at <= last; ++at) {
    const Block block = fs_.block_of(file.attributes(), static_cast<std::uint32_t>(at));
    SLUICE_INVARIANT_DEBUG(pinned.count < kMaxTransferBlocks, table_index);
    pinned.blocks[pinned.count++] = block;
    if (block != 0) pins_.pin(block);
  }
  if (confirm(file)) return true;
  unpin(call);
  return false;
}

const Block* PublishedFiles::pinned(Call& call) noexcept {
  return call.state<PinnedBlocks>().blocks;
}

bool PublishedFiles::unpin(Call& call) noexcept {
  auto& pinned = call.state<PinnedBlocks>();
  if (pinned.count == 0) return false;
  SLUICE_INVARIANT_DEBUG(pinned.count <= kMaxTransferBlocks, table_index);
  for (std::uint32_t i = 0; i < pinned.count; ++i)
    if (pinned.blocks[i] != 0) pins_.unpin(pinned.blocks[i]);
  pinned = {};
  return true;
}

// --- The service ---------------------------------------------------------------------------------

FileReader::FileReader(MemoryService& owner, Service& to_owner, const Keys& keys)
    : to_owner_(to_owner),
      fs_(owner.file_system()),
      periods_(owner.file_system().blocks().readers()),
      exports_(owner.exports()),
      tokens_(kMaxExports),
      statistics_(kMaxExports + 1),
      files_(fs_, tokens_),
      context_(context_of(owner, keys)) {
  files_.start(owner.file_system().add_reader(files_.pins()));
  set_tokens();
}

ReadContext FileReader::context_of(const MemoryService& owner, const Keys& keys) noexcept {
  const ReadContext theirs = owner.read_context();
  return {.fs = fs_,
          .exports = exports_,
          .statistics = statistics_,
          .max_io_bytes = theirs.max_io_bytes,
          .write_verifier = theirs.write_verifier,
          .data = theirs.data,
          .data_lkey = keys.data,
          .zeros = {theirs.zeros.bytes, keys.zeros}};
}

void FileReader::set_tokens() noexcept {
  for (std::size_t id = 0; id < tokens_.size(); ++id)
    tokens_[id] = id < exports_.size() ? fs_.root_token(exports_[id].path) : 0;
}

void FileReader::exchange_exports(std::vector<ExportOptions>& exports) noexcept {
  if (!SLUICE_INVARIANT(exports.size() <= kMaxExports, table_index)) return;
  exports_.swap(exports);
  set_tokens();
}

Execution FileReader::execute(Call& call) noexcept {
  // The owner answers what it has begun, and what it refuses.
  const std::uint32_t procedure = call.header().procedure;
  if (call.has_state() || !is_served(call.header().credential)) return to_owner_.execute(call);
  if (procedure == ulb::kNfs3Null) {
    call.complete(rpc::AcceptStat::Success);
    return Execution::Started;
  }
  if (!changes_nothing(procedure)) return to_owner_.execute(call);
  if (ReadProcedures(files_, context_, call).execute()) return Execution::Started;
  given_to_owner_.add(1);
  return to_owner_.execute(call);
}

void FileReader::release(Call& call) noexcept {
  if (call.has_state() && !files_.unpin(call)) to_owner_.release(call);
}

bool FileReader::background(std::uint64_t now_ns) noexcept {
  if (const std::uint64_t period = periods_.period(); period != files_.pins().confirmed())
    files_.pins().confirm(period);
  return to_owner_.background(now_ns);
}

}  // namespace sluice::service::memory
