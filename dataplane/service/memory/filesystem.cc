// SPDX-License-Identifier: Apache-2.0
//
// Exports, handles, inodes and directories: names are looked up by a keyed hash and listed in order of
// creation.
#include "dataplane/service/memory/filesystem.h"

#include <bit>
#include <cstring>

#include "dataplane/base/invariant.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/xdr/cursor.h"

namespace sluice::service::memory {
namespace {

/// Number of directory entries per inode. Each file has at least one name, and the second entry is room for
/// hard links.
constexpr std::size_t kEntriesPerInode = 2;
constexpr std::uint32_t kRootGeneration = 1;

std::uint64_t hash_text(const HashKey& key, std::string_view text) noexcept {
  return siphash(key, std::as_bytes(std::span{text.data(), text.size()}));
}

}  // namespace

FileSystem::FileSystem(rdma::MemoryRegion region, std::uint32_t max_files, const HashKey& key,
                       Clock wall_clock)
    : blocks_(region),
      inodes_(std::size_t{max_files} + 1),
      entries_(kEntriesPerInode * max_files + 1),
      buckets_(std::bit_ceil(entries_.size())),
      key_(key),
      clock_(wall_clock),
      start_(wall_clock()),
      priority_state_(hash_text(key, "treap priorities") | 1),
      inode_shares_(max_files),
      entry_shares_(static_cast<std::uint32_t>(entries_.size() - 1)) {
  exports_.reserve(kMaxExports);
}

bool FileSystem::set_export(std::uint32_t id, std::string_view path, std::uint64_t quota_bytes) noexcept {
  if (!SLUICE_INVARIANT(id < kMaxExports, table_index)) return false;
  const std::uint64_t token = root_token(path);
  while (exports_.size() <= id) exports_.emplace_back();  // within the reserved capacity
  ExportUse& use = exports_[id];
  use.quota_bytes = quota_bytes;
  if (use.root == 0 || use.root_token != token) {
    const InodeNumber number = new_inode(id, {.type = FileType::Directory, .mode = 0777});
    if (number == 0) return false;
    Inode& root = inodes_.change(number);
    root.generation = kRootGeneration;
    root.links = 2;
    root.parent = number;
    use.root = number;
    use.root_token = token;
    publish();
    publish_root(id);
  }
  inode_shares_.open(id);
  entry_shares_.open(id);
  return true;
}

void FileSystem::close_export(std::uint32_t id) noexcept {
  inode_shares_.close(id);
  entry_shares_.close(id);
}

HandleBytes FileSystem::handle_of(InodeNumber number) const noexcept {
  SLUICE_INVARIANT_DEBUG(number < inodes_.size() && inodes_[number].export_id < exports_.size(), table_index);
  const ExportUse& use = exports_[inodes_[number].export_id];
  return encode(number, inodes_[number], {use.root, use.root_token});
}

FileSystem::Found FileSystem::find(std::span<const std::byte> handle) const noexcept {
  const auto decoded = decode(handle);
  if (!decoded) return {Status::BadHandle};
  if (decoded->inode == 0 || decoded->inode >= inodes_.size()) return {Status::Stale};
  const Inode& inode = inodes_[decoded->inode];
  if (inode.type == FileType::None) return {Status::Stale};
  SLUICE_INVARIANT_DEBUG(inode.export_id < exports_.size(), table_index);
  const ExportUse& use = exports_[inode.export_id];
  if (!names(*decoded, inode, {use.root, use.root_token})) return {Status::Stale};
  return {Status::Ok, decoded->inode};
}

InodeNumber FileSystem::new_inode(std::uint32_t export_id, const NewInode& what) noexcept {
  InodeNumber number = free_inode_list_;
  if (number != 0)
    free_inode_list_ = inodes_[number].next;
  else if (never_used_inode_ < inodes_.size())
    number = never_used_inode_++;
  else
    return 0;
  static_cast<void>(SLUICE_INVARIANT(inodes_[number].type == FileType::None, file_storage));
  inode_shares_.take(export_id);
  Inode& inode = inodes_.change(number);
  const std::uint32_t generation = inode.generation + 1;
  inode = {};
  inode.generation = generation;
  inode.type = what.type;
  inode.mode = what.mode;
  inode.uid = what.uid;
  inode.gid = what.gid;
  inode.links = 1;
  inode.export_id = export_id;
  inode.atime_ns = inode.mtime_ns = inode.ctime_ns = clock_();
  inode.device_major = what.device_major;
  inode.device_minor = what.device_minor;
  inode.next_sequence = kFirstCookie;
  return number;
}

void FileSystem::free_inode(InodeNumber number) noexcept {
  Inode& inode = inodes_.change(number);
  static_cast<void>(SLUICE_INVARIANT(inode.type != FileType::None && number != 0, file_storage));
  static_cast<void>(SLUICE_INVARIANT(inode.used_bytes == 0 && inode.entries == 0, file_storage));
  inode_shares_.give_back(inode.export_id);
  inode.type = FileType::None;
  inode.next = free_inode_list_;
  free_inode_list_ = number;
}

/// A file without links is removed immediately; its blocks are reclaimed in the background.
void FileSystem::drop_link(InodeNumber number) noexcept {
  Inode& inode = inodes_.change(number);
  static_cast<void>(SLUICE_INVARIANT(inode.links > 0 && inode.type != FileType::None, file_storage));
  inode.ctime_ns = clock_();
  const std::uint32_t last = inode.type == FileType::Directory ? 2 : 1;
  if (inode.links > last) {
    --inode.links;
    return;
  }
  drop_blocks_from(inode, 0);
  free_inode(number);
}

bool FileSystem::background() noexcept {
  const bool reclaiming = reclaim_slice();
  const bool settling = blocks_.settle();
  return blocks_.scrub_one() || reclaiming || settling;
}

std::uint32_t FileSystem::bucket_of(InodeNumber directory, std::string_view name) const noexcept {
  std::array<std::byte, kMaxNameBytes + sizeof directory> bytes;
  std::memcpy(bytes.data(), &directory, sizeof directory);
  const std::size_t name_bytes = smaller_of<std::size_t>(name.size(), kMaxNameBytes);
  std::memcpy(bytes.data() + sizeof directory, name.data(), name_bytes);
  return static_cast<std::uint32_t>(siphash(key_, std::span(bytes).first(sizeof directory + name_bytes)) &
                                    (buckets_.size() - 1));
}

EntryNumber FileSystem::lookup(InodeNumber directory, std::string_view name) const noexcept {
  for (EntryNumber at = buckets_[bucket_of(directory, name)].own(); at != 0;
       at = entries_[at].hash_next.own())
    if (entries_[at].directory.own() == directory && entries_[at].name_view() == name) return at;
  return 0;
}

// --- Readers in other reactors -------------------------------------------------------------------

const Publication& FileSystem::add_reader(ReaderPins& reader) {
  blocks_.add_reader(reader);
  const Publication& publication = inodes_.start_publication(never_used_inode_);
  for (std::uint32_t id = 0; id < exports_.size(); ++id) publish_root(id);
  return publication;
}

void FileSystem::publish_root(std::uint32_t id) noexcept {
  if (Publication* const publication = inodes_.publication())
    publication->publish_root(id, {exports_[id].root, exports_[id].root_token});
}

std::uint64_t FileSystem::root_token(std::string_view path) const noexcept {
  return hash_text(key_, path);
}

HandleBytes FileSystem::encode(InodeNumber number, const FileAttributes& file,
                               const PublishedRoot& root) const noexcept {
  return encode_handle(key_, {.export_id = file.export_id,
                              .inode = number,
                              .generation = file.generation,
                              .token = number == root.root ? root.token : start_});
}

bool FileSystem::names(const FileHandle& handle, const FileAttributes& file,
                       const PublishedRoot& root) const noexcept {
  return file.type != FileType::None && file.generation == handle.generation &&
         file.export_id == handle.export_id &&
         handle.token == (handle.inode == root.root ? root.token : start_);
}

NameResult FileSystem::look_up_published(std::uint32_t bucket, InodeNumber directory, std::string_view name,
                                         InodeNumber& found) const noexcept {
  EntryNumber at = buckets_[bucket].load();
  for (std::uint32_t step = 0; step < kMaxChainSteps; ++step) {
    if (at == 0) return NameResult::None;
    if (at >= entries_.size()) break;
    const Entry& entry = entries_[at];
    if (entry.directory.load() == directory && entry.is_named(name)) {
      found = entry.inode.load();
      return NameResult::Found;
    }
    at = entry.hash_next.load();
  }
  return NameResult::Unknown;
}

// --- The tree of a directory ---------------------------------------------------------------------

/// Inserts a new entry on the right edge, because it has the highest sequence.
void FileSystem::tree_append(Inode& directory, EntryNumber number) noexcept {
  // xorshift64 (Marsaglia, 2003), seeded by the key: clients can neither predict nor choose the shape.
  priority_state_ ^= priority_state_ << 13;
  priority_state_ ^= priority_state_ >> 7;
  priority_state_ ^= priority_state_ << 17;
  Entry& entry = entries_[number];
  entry.priority = static_cast<std::uint32_t>(priority_state_ >> 32);
  entry.right = 0;
  EntryNumber parent = 0;
  EntryNumber below = directory.entry_root;
  while (below != 0 && entries_[below].priority >= entry.priority) {
    parent = below;
    below = entries_[below].right;
  }
  SLUICE_INVARIANT_DEBUG(parent == 0 || entries_[parent].sequence < entry.sequence, file_storage);
  entry.left = below;
  if (below != 0) entries_[below].parent = number;
  entry.parent = parent;
  (parent != 0 ? entries_[parent].right : directory.entry_root) = number;
}

/// Removes an entry and merges its subtrees into its place.
void FileSystem::tree_remove(Inode& directory, EntryNumber number) noexcept {
  SLUICE_INVARIANT_DEBUG(directory.entry_root != 0, file_storage);
  const Entry& entry = entries_[number];
  EntryNumber left = entry.left;
  EntryNumber right = entry.right;
  EntryNumber parent = entry.parent;
  EntryNumber* place = &directory.entry_root;
  if (parent != 0) place = entries_[parent].left == number ? &entries_[parent].left : &entries_[parent].right;
  while (left != 0 && right != 0) {
    const bool take_left = entries_[left].priority >= entries_[right].priority;
    const EntryNumber top = take_left ? left : right;
    *place = top;
    entries_[top].parent = parent;
    parent = top;
    place = take_left ? &entries_[top].right : &entries_[top].left;
    (take_left ? left : right) = *place;
  }
  *place = left != 0 ? left : right;
  if (*place != 0) entries_[*place].parent = parent;
}

EntryNumber FileSystem::entry_after(InodeNumber directory, std::uint64_t cookie) const noexcept {
  SLUICE_INVARIANT_DEBUG(inodes_[directory].type == FileType::Directory, file_storage);
  EntryNumber found = 0;
  for (EntryNumber at = inodes_[directory].entry_root; at != 0;) {
    if (entries_[at].sequence > cookie) {
      found = at;
      at = entries_[at].left;
    } else {
      at = entries_[at].right;
    }
  }
  return found;
}

EntryNumber FileSystem::entry_next(EntryNumber number) const noexcept {
  if (EntryNumber at = entries_[number].right; at != 0) {
    while (entries_[at].left != 0) at = entries_[at].left;
    return at;
  }
  EntryNumber at = number;
  EntryNumber above = entries_[at].parent;
  while (above != 0 && entries_[above].right == at) {
    at = above;
    above = entries_[at].parent;
  }
  return above;
}

// --- Entries -------------------------------------------------------------------------------------

EntryNumber FileSystem::add_entry(InodeNumber directory, std::string_view name, InodeNumber target) noexcept {
  EntryNumber number = free_entry_list_;
  if (number != 0)
    free_entry_list_ = entries_[number].hash_next.own();
  else if (never_used_entry_ < entries_.size())
    number = never_used_entry_++;
  else
    return 0;
  Inode& parent = inodes_.change(directory);
  static_cast<void>(SLUICE_INVARIANT(parent.type == FileType::Directory && target != 0, file_storage));
  static_cast<void>(SLUICE_INVARIANT(!name.empty() && name.size() <= kMaxNameBytes, buffer_bounds));
  entry_shares_.take(parent.export_id);
  Entry& entry = entries_[number];
  const std::uint32_t bucket = bucket_of(directory, name);
  inodes_.change_name(bucket);
  entry.inode.store(target);
  entry.set_name(name);
  entry.hash_next.store(buckets_[bucket].own());
  entry.directory.store(directory);
  buckets_[bucket].store(number);
  SLUICE_STORE_POINT();
  entry.sequence = parent.next_sequence++;
  tree_append(parent, number);
  ++parent.entries;
  parent.mtime_ns = parent.ctime_ns = clock_();
  if (inodes_[target].type == FileType::Directory) {
    inodes_.change(target).parent = directory;
    ++parent.links;
  }
  return number;
}

/// Removes an entry from its directory. Does not change the inode that it refers to.
void FileSystem::unlink_entry(EntryNumber number) noexcept {
  Entry& entry = entries_[number];
  Inode& parent = inodes_.change(entry.directory.own());
  static_cast<void>(SLUICE_INVARIANT(entry.directory.own() != 0 && parent.entries > 0, file_storage));
  const std::uint32_t bucket = bucket_of(entry.directory.own(), entry.name_view());
  inodes_.change_name(bucket);
  EntryWord<EntryNumber>* link = &buckets_[bucket];
  while (link->own() != number) {
    SLUICE_INVARIANT_DEBUG(link->own() != 0, file_storage);
    link = &entries_[link->own()].hash_next;
  }
  link->store(entry.hash_next.own());
  SLUICE_STORE_POINT();
  tree_remove(parent, number);
  entry_shares_.give_back(parent.export_id);
  --parent.entries;
  parent.mtime_ns = parent.ctime_ns = clock_();
  if (inodes_[entry.inode.own()].type == FileType::Directory) --parent.links;
  entry.directory.store(0);
  entry.hash_next.store(free_entry_list_);
  free_entry_list_ = number;
}

FileSystem::Found FileSystem::create(InodeNumber directory, std::string_view name,
                                     const NewInode& what) noexcept {
  const std::uint32_t id = inodes_[directory].export_id;
  if (available_files(id) == 0) return {Status::NoSpc};
  const InodeNumber number = new_inode(id, what);
  if (!SLUICE_INVARIANT(number != 0, pool_balance)) return {Status::NoSpc};
  if (what.type == FileType::Directory) inodes_.change(number).links = 2;
  const EntryNumber entry = add_entry(directory, name, number);
  static_cast<void>(SLUICE_INVARIANT(entry != 0, pool_balance));
  return {Status::Ok, number};
}

Status FileSystem::link(InodeNumber directory, std::string_view name, InodeNumber target) noexcept {
  if (inodes_[target].links >= kMaxLinks) return Status::MLink;
  if (entry_shares_.available(inodes_[directory].export_id) == 0) return Status::NoSpc;
  add_entry(directory, name, target);
  Inode& inode = inodes_.change(target);
  ++inode.links;
  inode.ctime_ns = clock_();
  return Status::Ok;
}

void FileSystem::remove_entry(EntryNumber number) noexcept {
  if (!SLUICE_INVARIANT(number != 0 && number < entries_.size(), table_index)) return;
  const InodeNumber target = entries_[number].inode.own();
  unlink_entry(number);
  drop_link(target);
}

void FileSystem::rename(EntryNumber from, InodeNumber to_directory, std::string_view to_name) noexcept {
  const InodeNumber target = entries_[from].inode.own();
  if (const EntryNumber existing = lookup(to_directory, to_name); existing != 0) remove_entry(existing);
  unlink_entry(from);
  const EntryNumber added = add_entry(to_directory, to_name, target);  // the entry freed above is available
  static_cast<void>(SLUICE_INVARIANT(added != 0, pool_balance));
  inodes_.change(target).ctime_ns = clock_();
}

bool FileSystem::is_within(InodeNumber directory, InodeNumber ancestor) const noexcept {
  for (std::uint32_t depth = 0; depth < kMaxDirectoryDepth; ++depth) {
    if (directory == ancestor) return true;
    const InodeNumber parent = inodes_[directory].parent;
    if (parent == directory) return false;
    directory = parent;
  }
  return true;
}

// --- File handles --------------------------------------------------------------------------------

namespace {

constexpr std::uint32_t kFormat = 0x534c4832;  // "SLH2"
constexpr std::size_t kNamedBytes = 24;

static_assert(kNamedBytes + sizeof(std::uint64_t) == kHandleBytes);

}  // namespace

HandleBytes encode_handle(const HashKey& key, const FileHandle& handle) noexcept {
  HandleBytes out;
  xdr::store_u32(out.data(), kFormat);
  xdr::store_u32(out.data() + 4, handle.export_id);
  xdr::store_u32(out.data() + 8, handle.inode);
  xdr::store_u32(out.data() + 12, handle.generation);
  xdr::store_u64(out.data() + 16, handle.token);
  xdr::store_u64(out.data() + kNamedBytes, siphash(key, std::span(out).first(kNamedBytes)));
  return out;
}

std::optional<FileHandle> decode_handle(const HashKey& key, std::span<const std::byte> bytes) noexcept {
  if (bytes.size() != kHandleBytes || xdr::load_u32(bytes.data()) != kFormat) return std::nullopt;
  if (xdr::load_u64(bytes.data() + kNamedBytes) != siphash(key, bytes.first(kNamedBytes)))
    return std::nullopt;
  return FileHandle{xdr::load_u32(bytes.data() + 4), xdr::load_u32(bytes.data() + 8),
                    xdr::load_u32(bytes.data() + 12), xdr::load_u64(bytes.data() + 16)};
}

}  // namespace sluice::service::memory
