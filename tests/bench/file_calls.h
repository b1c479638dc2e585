// SPDX-License-Identifier: Apache-2.0
//
// NFSv3 calls of one kind for a ClosedLoop: on a file of 32 blocks of 4 KiB, or on names in the root
// directory. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cli/bench/client.h"
#include "dataplane/rpc/message.h"
#include "dataplane/ulb/nfs3.h"
#include "dataplane/xdr/cursor.h"
#include "tests/bench/closed_loop.h"

namespace sluice::bench {

enum class FileCall : std::uint8_t { Null, GetAttr, Access, Lookup, Read4k, Commit, Write4k, Create, Remove };

/// A file and the names that CREATE and REMOVE use.
struct FileNames {
  std::vector<std::byte> root;  ///< handle of the directory
  std::string file;
  std::vector<std::byte> handle;  ///< handle of the file
  std::string prefix;             ///< of the names of CREATE and REMOVE
};

class FileCalls {
 public:
  static constexpr std::uint32_t kBlocks = 32;
  static constexpr std::uint32_t kBlockBytes = 4096;

  /// `memory` has a block for each task.
  FileCalls(FileCall kind, const FileNames& names, const rdma::MemoryRegion& memory)
      : kind_(kind), names_(names), memory_(memory) {}

  rpcrdma::Request next(std::size_t task) {
    piece_ = {memory_.bytes.data() + task * kBlockBytes, kBlockBytes, memory_.lkey};
    make_message();
    ++made_;
    rpcrdma::Request request;
    request.payload = message_;
    request.max_reply_bytes = kMaxReplyBytes;
    written_ = {{&piece_, 1}};
    read_ = {static_cast<rpcrdma::Position>(message_.size()), {&piece_, 1}};
    if (kind_ == FileCall::Read4k) request.writes = {&written_, 1};
    if (kind_ == FileCall::Write4k) request.reads = {&read_, 1};
    return request;
  }
  bool succeeded(const rpcrdma::Reply& reply) {
    xdr::Reader reader(reply.message());
    const rpc::ReplyDecodeResult decoded = rpc::decode_reply(reader);
    if (!decoded.ok || !decoded.header.success()) return false;
    if (kind_ == FileCall::Null) return reader.remaining() == 0;
    if (reader.u32() != 0) return false;
    if (kind_ == FileCall::Read4k) return reply.returned(0) == kBlockBytes;
    if (kind_ == FileCall::Create && reader.boolean()) {
      const auto handle = reader.opaque(kMaxHandle);
      created_.assign(handle.begin(), handle.end());
    }
    return reader.ok();
  }
  /// Returns the handle of the last file that CREATE made.
  const std::vector<std::byte>& created() const { return created_; }

 private:
  static constexpr std::uint32_t kMaxReplyBytes = 512;
  static constexpr std::uint32_t kMaxHandle = 64;
  static constexpr std::uint32_t kFileSync = 2;

  static std::uint32_t procedure_of(FileCall kind) {
    static constexpr std::uint32_t kProcedures[] = {ulb::kNfs3Null,   ulb::kNfs3GetAttr, ulb::kNfs3Access,
                                                    ulb::kNfs3Lookup, ulb::kNfs3Read,    ulb::kNfs3Commit,
                                                    ulb::kNfs3Write,  ulb::kNfs3Create,  ulb::kNfs3Remove};
    return kProcedures[static_cast<std::size_t>(kind)];
  }
  void make_message() {
    CallBuilder call(ulb::kNfsProgram, ulb::kNfs3Version, procedure_of(kind_));
    xdr::Writer& out = call.arguments();
    const auto offset = static_cast<std::uint32_t>(made_ % kBlocks * kBlockBytes);
    const bool in_directory =
        kind_ == FileCall::Lookup || kind_ == FileCall::Create || kind_ == FileCall::Remove;
    if (kind_ != FileCall::Null) out.opaque(in_directory ? names_.root : names_.handle);
    if (kind_ == FileCall::Access) out.u32(kAllAccess);
    if (kind_ == FileCall::Lookup) out.string(names_.file);
    if (kind_ == FileCall::Read4k) out.words(0, offset, kBlockBytes);
    if (kind_ == FileCall::Commit) out.words(0, 0, 0);
    if (kind_ == FileCall::Write4k) out.words(0, offset, kBlockBytes, kFileSync, kBlockBytes);
    if (kind_ == FileCall::Create || kind_ == FileCall::Remove)
      out.string(names_.prefix + std::to_string(made_));
    if (kind_ == FileCall::Create) out.words(0, 1, 0666, 0, 0, 0, 0, 0);  // UNCHECKED, the mode only
    message_.assign(call.message().begin(), call.message().end());
  }
  static constexpr std::uint32_t kAllAccess = 0x3f;

  const FileCall kind_;
  const FileNames names_;
  const rdma::MemoryRegion memory_;
  std::uint64_t made_ = 0;
  std::vector<std::byte> message_;
  rdma::Sge piece_;
  rpcrdma::WriteItem written_;
  rpcrdma::ReadItem read_;
  std::vector<std::byte> created_;
};

}  // namespace sluice::bench
