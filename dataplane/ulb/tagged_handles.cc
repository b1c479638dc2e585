// SPDX-License-Identifier: Apache-2.0
#include "dataplane/ulb/tagged_handles.h"

#include <cstring>

#include "dataplane/ulb/bindings.h"
#include "dataplane/ulb/nfs2.h"
#include "dataplane/ulb/nfs3.h"
#include "dataplane/ulb/nfs4.h"

namespace sluice::ulb {
namespace {

constexpr std::size_t kFsidAt = 44;  ///< offset in a fattr3
constexpr std::size_t kWccAttributes = 24;
/// Maximum length of a name, in bytes. The limit is generous, because the server checks the length.
constexpr std::uint32_t kMaxName = 64 << 10;
/// Size of the shortest READDIRPLUS entry with a handle, in bytes. It has two flags, five more words, a name
/// and a handle of one word each, and their two length words.
constexpr std::uint32_t kShortestEntry = 44;

enum NfsAclProcedure : std::uint32_t { kGetAcl = 1, kSetAcl = 2 };

/// Consumes the handle at the reader's position, and adds its tag to `handles`.
CallHandles::State step_over_handle(xdr::Reader& reader, CallHandles& handles) noexcept {
  const std::size_t at = reader.position() + xdr::kUnit;
  const auto handle = reader.opaque(kMaxHandleBytes);
  if (!reader.ok()) return CallHandles::State::Unreadable;
  if (handle.size() <= kTagBytes) return CallHandles::State::Untagged;
  handles.tags[handles.count] = xdr::load_u32(handle.data());
  handles.at[handles.count++] = at;
  return CallHandles::State::Tagged;
}

bool has_handle(std::uint32_t program, std::uint32_t procedure) noexcept {
  if (program == kNfsAclProgram) return procedure == kGetAcl || procedure == kSetAcl;
  return procedure > kNfs3Null && procedure < kNfs3Procedures;
}

/// Returns the maxcount with which tagged READDIRPLUS results fit `most_bytes`. Each entry has at least
/// kShortestEntry bytes, and grows by one tag.
std::uint32_t with_room_for_tags(std::uint32_t most_bytes) noexcept {
  constexpr std::uint32_t kShare = kShortestEntry / kTagBytes + 1;
  return most_bytes - most_bytes / kShare - (most_bytes % kShare != 0 ? 1 : 0);
}

/// Lowers the maxcount of a READDIRPLUS. The arguments are handle, cookie, cookieverf, dircount and maxcount.
void ask_for_less(std::span<std::byte> arguments) noexcept {
  xdr::Reader reader(arguments);
  reader.opaque(kMaxHandleBytes);
  reader.skip(8 + 8 + 4);
  const std::size_t at = reader.position();
  const std::uint32_t most = reader.u32();
  if (reader.ok()) xdr::store_u32(&arguments[at], with_room_for_tags(most));
}

/// Parser of NFS results that reports the offsets of attributes and handles to `visitor`. For a required
/// handle the offset is that of its length, for an optional handle that of the flag before it. walk() returns
/// false if the results cannot be parsed.
template <typename Visitor>
class ResultsWalk {
 public:
  ResultsWalk(std::span<const std::byte> results, Visitor& visitor) noexcept
      : reader_(results), visitor_(visitor) {}

  bool walk(std::uint32_t procedure) noexcept {
    const bool success = reader_.u32() == 0;
    switch (procedure) {
      case kNfs3Null:
        return true;
      case kNfs3GetAttr:
        if (success) attributes();
        break;
      case kNfs3Lookup:
        if (success) required_handle();
        if (success) optional_attributes();
        optional_attributes();
        break;
      case kNfs3Create:
      case kNfs3MkDir:
      case kNfs3SymLink:
      case kNfs3MkNod:
        if (success) optional_handle();
        if (success) optional_attributes();
        wcc_data();
        break;
      case kNfs3SetAttr:
      case kNfs3Write:
      case kNfs3Remove:
      case kNfs3RmDir:
      case kNfs3Commit:
        wcc_data();
        break;
      case kNfs3Rename:
        wcc_data();
        wcc_data();
        break;
      case kNfs3Link:
        optional_attributes();
        wcc_data();
        break;
      case kNfs3ReadDirPlus:
        optional_attributes();
        if (success) entries();
        break;
      default:  // All other results begin with the attributes of the file, and have no handle.
        optional_attributes();
    }
    return reader_.ok();
  }

 private:
  void attributes() noexcept {
    if (reader_.remaining() < kFattr3) return reader_.fail();
    visitor_.attributes(reader_.position());
    reader_.skip(kFattr3);
  }
  void optional_attributes() noexcept {
    if (reader_.boolean()) attributes();
  }
  void wcc_data() noexcept {
    if (reader_.boolean()) reader_.skip(kWccAttributes);
    optional_attributes();
  }
  void required_handle() noexcept {
    const std::size_t at = reader_.position();
    const auto handle = reader_.opaque(kMaxHandleBytes);
    if (reader_.ok()) visitor_.required_handle(at, handle);
  }
  void optional_handle() noexcept {
    const std::size_t at = reader_.position();
    if (!reader_.boolean()) return;
    const auto handle = reader_.opaque(kMaxHandleBytes);
    if (reader_.ok()) visitor_.optional_handle(at, handle);
  }
  /// Steps over the entries of a directory. The message bounds their number, because no entry is empty.
  void entries() noexcept {
    reader_.skip(8);  // cookieverf
    while (reader_.boolean() && reader_.ok()) {
      reader_.skip(8);  // fileid
      reader_.opaque(kMaxName);
      reader_.skip(8);  // cookie
      optional_attributes();
      optional_handle();
    }
  }

  xdr::Reader reader_;
  Visitor& visitor_;
};

struct HandleCounter {
  void attributes(std::size_t) noexcept {}
  void required_handle(std::size_t, std::span<const std::byte>) noexcept { ++count; }
  void optional_handle(std::size_t, std::span<const std::byte>) noexcept { ++count; }
  std::size_t count = 0;
};

/// Visitor that copies the results and adds tags.
struct TagWriter {
  void attributes(std::size_t) noexcept {}
  void required_handle(std::size_t at, std::span<const std::byte> handle) noexcept {
    if (handle.size() <= kMaxTaggableBytes) return tagged(at, handle);
    ++too_long;
    // Only LOOKUP has a required handle. The status before the handle has not been copied yet.
    write_error(to, kNfsProgram, kNfs3Lookup, Nfs3Error::ServerFault);
    copied = results.size();
    failed = true;
  }
  void optional_handle(std::size_t at, std::span<const std::byte> handle) noexcept {
    if (failed) return;
    if (handle.size() <= kMaxTaggableBytes) return tagged(at + xdr::kUnit, handle);
    ++too_long;
    copy_to(at);
    to.boolean(false);
    copied = at + 2 * xdr::kUnit + xdr::padded(handle.size());
  }
  void tagged(std::size_t at, std::span<const std::byte> handle) noexcept {
    copy_to(at);
    to.u32(static_cast<std::uint32_t>(kTagBytes + handle.size()));
    to.u32(tag);
    copied = at + xdr::kUnit;
  }
  void copy_to(std::size_t at) noexcept {
    if (at == copied) return;
    to.opaque_fixed(results.subspan(copied, at - copied));
    copied = at;
  }

  xdr::Writer& to;
  std::span<const std::byte> results;
  std::uint32_t tag;
  std::size_t copied = 0;
  std::size_t too_long = 0;
  bool failed = false;
};

struct FileSystemTagger {
  void attributes(std::size_t at) noexcept {
    std::byte* const fsid = results.data() + at + kFsidAt;
    xdr::store_u32(fsid, xdr::load_u32(fsid) ^ tag);
  }
  void required_handle(std::size_t, std::span<const std::byte>) noexcept {}
  void optional_handle(std::size_t, std::span<const std::byte>) noexcept {}
  std::span<std::byte> results;
  std::uint32_t tag;
};

/// Returns the number of words after the status in an error. Each is a FALSE for optional attributes, before
/// and after the operation.
std::uint32_t words_of_error(std::uint32_t program, std::uint32_t procedure) noexcept {
  if (program == kNfsAclProgram) return 1;
  switch (procedure) {
    case kNfs3Null:
    case kNfs3GetAttr:
      return 0;
    case kNfs3SetAttr:
    case kNfs3Write:
    case kNfs3Create:
    case kNfs3MkDir:
    case kNfs3SymLink:
    case kNfs3MkNod:
    case kNfs3Remove:
    case kNfs3RmDir:
    case kNfs3Commit:
      return 2;
    case kNfs3Rename:
      return 4;
    case kNfs3Link:
      return 3;
    default:
      return 1;
  }
}

}  // namespace

CallHandles find_handles(std::uint32_t program, std::uint32_t procedure,
                         std::span<const std::byte> arguments) noexcept {
  CallHandles handles;
  if (!has_handle(program, procedure)) return handles;
  xdr::Reader reader(arguments);
  handles.state = step_over_handle(reader, handles);
  const bool two = program == kNfsProgram && (procedure == kNfs3Rename || procedure == kNfs3Link);
  if (!two || handles.state != CallHandles::State::Tagged) return handles;
  if (procedure == kNfs3Rename) reader.opaque(kMaxName);
  handles.state = step_over_handle(reader, handles);
  return handles;
}

std::span<std::byte> remove_tags(std::uint32_t program, std::uint32_t procedure, std::span<std::byte> message,
                                 std::size_t arguments_bytes, const CallHandles& handles) noexcept {
  const std::size_t arguments_at = message.size() - arguments_bytes;
  if (program == kNfsProgram && procedure == kNfs3ReadDirPlus) ask_for_less(message.subspan(arguments_at));
  for (std::size_t i = 0; i < handles.count; ++i) {
    std::byte* const length = &message[arguments_at + handles.at[i] - xdr::kUnit];
    xdr::store_u32(length, xdr::load_u32(length) - static_cast<std::uint32_t>(kTagBytes));
  }
  // The bytes before the last tag move over it. Then the bytes before the first tag, which has moved too,
  // move over that tag.
  std::size_t begin = 0;
  for (std::size_t i = handles.count; i-- > 0;) {
    const std::size_t tag_at = arguments_at + handles.at[i] + begin;
    std::memmove(&message[begin + kTagBytes], &message[begin], tag_at - begin);
    begin += kTagBytes;
  }
  return message.subspan(begin);
}

void write_error(xdr::Writer& results, std::uint32_t program, std::uint32_t procedure,
                 Nfs3Error error) noexcept {
  results.u32(static_cast<std::uint32_t>(error));
  for (std::uint32_t i = words_of_error(program, procedure); i > 0; --i) results.boolean(false);
}

std::size_t growth_by_tags(std::uint32_t procedure, std::span<const std::byte> results) noexcept {
  HandleCounter counter;
  ResultsWalk(results, counter).walk(procedure);
  return counter.count * kTagBytes;
}

std::size_t write_tagged(xdr::Writer& to, std::uint32_t procedure, std::span<const std::byte> results,
                         std::uint32_t tag) noexcept {
  TagWriter writer{.to = to, .results = results, .tag = tag};
  ResultsWalk(results, writer).walk(procedure);
  writer.copy_to(results.size());
  return writer.too_long;
}

void tag_file_systems(std::uint32_t program, std::uint32_t procedure, std::span<std::byte> results,
                      std::uint32_t tag) noexcept {
  FileSystemTagger tagger{.results = results, .tag = tag};
  // Results of GETACL and SETACL begin with the attributes, like results of the NFS procedures without
  // handles.
  ResultsWalk(results, tagger).walk(program == kNfsAclProgram && procedure != 0 ? kNfs3Access : procedure);
}

// --- Bindings by program and version

namespace {

constexpr std::uint32_t kNlmProgram = 100021;
constexpr NamedProgram kNamed[] = {
    {"nfs2", kNfsProgram, kNfs2Version},
    {"nfs3", kNfsProgram, kNfs3Version},
    {"nfs4", kNfsProgram, kNfs4Version},
    {"nfsacl2", kNfsAclProgram, kNfs2Version},
    {"nfsacl3", kNfsAclProgram, kNfs3Version},
    {"mount1", kMountProgram, 1},
    {"mount3", kMountProgram, 3},
    {"nlm4", kNlmProgram, 4},
};

}  // namespace

const service::Binding* find_binding(std::uint32_t program, std::uint32_t version) noexcept {
  for (const service::Binding* binding : {&nfs2_binding(), &nfs3_binding(), &nfs4_binding(),
                                          &nfsacl2_binding(), &nfsacl3_binding(), &mount3_binding()})
    if (binding->program == program && binding->version == version) return binding;
  return nullptr;
}

service::Binding binding_or_plain(std::uint32_t program, std::uint32_t version) noexcept {
  if (const service::Binding* const binding = find_binding(program, version)) return *binding;
  return {.program = program, .version = version, .unusable = service::UnusableChunks::Ignore};
}

std::span<const NamedProgram> named_programs() noexcept {
  return kNamed;
}

}  // namespace sluice::ulb
