// SPDX-License-Identifier: Apache-2.0
#include "cli/conformance/upper_layer.h"

#include <algorithm>

#include "dataplane/ulb/nfs3.h"

namespace sluice::conformance {
namespace {

constexpr std::uint32_t kReplyHeaderBytes = 24;  // with a verifier of AUTH_NONE
constexpr std::uint32_t kStatusBytes = 4;
/// READ3resok without its data: attributes, count, eof, the count word of the data.
constexpr std::uint32_t kReadResultBytes = 88 + 12;

/// The call's arguments, with positions counted from the first byte of the RPC message.
class Arguments {
 public:
  explicit Arguments(const RpcCall& call) : base_(call.arguments), reader_(call.argument_bytes()) {}
  xdr::Reader& operator*() { return reader_; }
  xdr::Reader* operator->() { return &reader_; }
  void opaque() { reader_.opaque(kAnySize); }
  EligibleArgument eligible() {
    const std::uint32_t bytes = reader_.u32();
    const EligibleArgument item{static_cast<std::uint32_t>(base_ + reader_.position()), bytes};
    reader_.skip(std::min<std::uint64_t>(padded(bytes), reader_.remaining()));  // a chunk may be too short
    return item;
  }

 private:
  std::size_t base_;
  xdr::Reader reader_;
};

void skip_sattr3(xdr::Reader& reader) {
  for (int i = 0; i < 3; ++i)  // mode, uid, gid
    if (reader.u32() == 1) reader.u32();
  if (reader.u32() == 1) reader.u64();  // size
  for (int i = 0; i < 2; ++i)           // atime, mtime
    if (reader.u32() == 2) reader.u64();
}

UpperLayer nfs3(const RpcCall& call) {
  UpperLayer result{.known = true};
  Arguments at(call);
  if (call.procedure != ulb::kNfs3Null) at.opaque();  // a handle comes first
  switch (call.procedure) {
    case ulb::kNfs3Write:
      at->skip(16);  // offset, count, stable
      result.arguments = {at.eligible()};
      break;
    case ulb::kNfs3SymLink:
      at.opaque();
      skip_sattr3(*at);
      result.arguments = {at.eligible()};
      break;
    case ulb::kNfs3Read:
      at->skip(8);
      result.results = {at->u32()};
      result.largest_reply = kReplyHeaderBytes + kStatusBytes + kReadResultBytes;
      break;
    case ulb::kNfs3ReadLink:
      result.results = {kAnySize};
      break;
    case ulb::kNfs3ReadDir:
      at->skip(16);  // cookie, verifier
      result.largest_reply = kReplyHeaderBytes + kStatusBytes + at->u32();
      break;
    case ulb::kNfs3ReadDirPlus:
      at->skip(20);  // cookie, verifier, dircount
      result.largest_reply = kReplyHeaderBytes + kStatusBytes + at->u32();
      break;
    default:
      at->skip(at->remaining());
      break;
  }
  result.known = at->ok();
  result.left_over = at->remaining();
  return result;
}

/// Of a COMPOUND as far as its operations are ones that clients combine with READ and WRITE.
UpperLayer nfs4(const RpcCall& call) {
  enum : std::uint32_t {
    kGetAttr = 9,
    kPutFh = 22,
    kPutRootFh = 24,
    kRead = 25,
    kReadLink = 27,
    kRestoreFh = 31,
    kSaveFh = 32,
    kWrite = 38,
    kSequence = 53,
  };
  UpperLayer result;
  if (call.procedure == 0) return {.known = true};
  Arguments at(call);
  at.opaque();  // tag
  at->u32();    // minor version
  for (std::uint32_t left = at->u32(); left > 0 && at->ok(); --left) {
    switch (at->u32()) {
      case kSequence:
        at->skip(32);
        break;
      case kPutFh:
        at.opaque();
        break;
      case kGetAttr:
        for (std::uint32_t words = at->u32(); words > 0 && at->ok(); --words) at->u32();
        break;
      case kRead:
        at->skip(24);
        result.results.push_back(at->u32());
        break;
      case kReadLink:
        result.results.push_back(kAnySize);
        break;
      case kWrite:
        at->skip(28);  // state, offset, stable
        result.arguments.push_back(at.eligible());
        break;
      case kPutRootFh:
      case kSaveFh:
      case kRestoreFh:
        break;
      default:
        return {};
    }
  }
  result.known = at->ok();
  result.left_over = at->remaining();
  return result;
}

}  // namespace

UpperLayer upper_layer_of(const RpcCall& call) {
  if (!call.readable) return {};
  if (call.program == kNfs && call.version == 3) return nfs3(call);
  if (call.program == kNfs && call.version == 4) return nfs4(call);
  return {.known = call.program == kNfsAcl};
}

std::string name_of(const RpcCall& call) {
  static constexpr const char* kNfs3[] = {"NULL",   "GETATTR", "SETATTR",  "LOOKUP", "ACCESS",  "READLINK",
                                          "READ",   "WRITE",   "CREATE",   "MKDIR",  "SYMLINK", "MKNOD",
                                          "REMOVE", "RMDIR",   "RENAME",   "LINK",   "READDIR", "READDIRPLUS",
                                          "FSSTAT", "FSINFO",  "PATHCONF", "COMMIT"};
  if (!call.readable) return "an RPC message that is no call";
  if (call.program == kNfs && call.version == 3 && call.procedure < std::size(kNfs3))
    return kNfs3[call.procedure];
  if (call.program == kNfs && call.version == 4) return call.procedure == 0 ? "NULL" : "COMPOUND";
  return "procedure " + std::to_string(call.procedure) + " of program " + std::to_string(call.program);
}

}  // namespace sluice::conformance
