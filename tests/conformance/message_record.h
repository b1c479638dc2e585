// SPDX-License-Identifier: Apache-2.0
//
// Records the messages of a run for another judge (tests/dissector). With SLUICE_MESSAGES=FILE in the
// environment, each Send to and from a raw peer is appended to that file, with the verdict of our decoder of
// version 2. The format is little-endian:
//
//    u32 connection, u32 to_engine (0 or 1), u32 verdict (v2::Decode), u32 header bytes, u32 length, bytes
//
// The body of properties is judged as if the message were whole.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>

#include "dataplane/rpcrdma/wire/v2.h"

namespace sluice::conformance {

class MessageRecord {
 public:
  static MessageRecord& of_this_run() {
    static MessageRecord record;
    return record;
  }
  std::uint32_t next_connection() { return ++connections_; }
  void add(std::uint32_t connection, bool to_engine, std::span<const std::byte> message) {
    if (!file_) return;
    const auto decoded = rpcrdma::v2::decode(message);
    auto verdict = decoded.status;
    if (verdict == rpcrdma::v2::Decode::Ok && decoded.header.type == rpcrdma::v2::HeaderType::ConnProp &&
        !decoded.header.more() && !rpcrdma::v2::decode_properties(decoded.header.properties))
      verdict = rpcrdma::v2::Decode::BadXdr;
    const std::uint32_t head[] = {connection, to_engine, static_cast<std::uint32_t>(verdict),
                                  static_cast<std::uint32_t>(decoded.header.header_bytes),
                                  static_cast<std::uint32_t>(message.size())};
    std::fwrite(head, sizeof head, 1, file_.get());
    std::fwrite(message.data(), message.size(), 1, file_.get());
  }

 private:
  MessageRecord() {
    if (const char* path = std::getenv("SLUICE_MESSAGES")) file_.reset(std::fopen(path, "wb"));
  }

  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::unique_ptr<std::FILE, Close> file_;
  std::uint32_t connections_ = 0;
};

}  // namespace sluice::conformance
