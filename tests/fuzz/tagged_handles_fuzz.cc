// SPDX-License-Identifier: Apache-2.0
//
// Checks the tags of NFS version 3 file handles in arguments and results. Tags are removed and added within
// the message, the growth is computed before, and tagging the file systems twice restores the results.
//
// The input is a byte for program and procedure, then arguments or results.
#include <algorithm>
#include <cstdlib>
#include <vector>

#include "dataplane/ulb/nfs3.h"
#include "dataplane/ulb/tagged_handles.h"

using namespace sluice;

namespace {

constexpr std::uint32_t kTag = 0xA1B2C3D4;
constexpr std::size_t kHeader = 40;

void check(bool right) {
  if (!right) std::abort();
}

void check_call(std::uint32_t program, std::uint32_t procedure, const std::vector<std::byte>& arguments) {
  const ulb::CallHandles handles = ulb::find_handles(program, procedure, arguments);
  if (handles.state != ulb::CallHandles::State::Tagged) return;
  std::vector<std::byte> message(kHeader);
  message.insert(message.end(), arguments.begin(), arguments.end());
  const auto left = ulb::remove_tags(program, procedure, message, arguments.size(), handles);
  check(left.size() + ulb::kTagBytes * handles.count == message.size());
  check(left.data() + left.size() == message.data() + message.size());
  check(
      std::all_of(left.begin(), left.begin() + kHeader, [](std::byte byte) { return byte == std::byte{0}; }));
}

void check_results(std::uint32_t program, std::uint32_t procedure, const std::vector<std::byte>& results) {
  std::vector<std::byte> room(xdr::padded(results.size()) + ulb::growth_by_tags(procedure, results));
  xdr::Writer writer(room);
  const std::size_t too_long = ulb::write_tagged(writer, procedure, results, kTag);
  check(writer.ok());
  check(too_long > 0 || writer.position() == room.size());
  std::vector<std::byte> changed = results;
  ulb::tag_file_systems(program, procedure, changed, kTag);
  ulb::tag_file_systems(program, procedure, changed, kTag);
  check(changed == results);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::vector<std::byte> body(reinterpret_cast<const std::byte*>(data) + 1,
                                    reinterpret_cast<const std::byte*>(data) + size);
  const std::uint32_t program = (data[0] & 0x80) != 0 ? ulb::kNfsAclProgram : ulb::kNfsProgram;
  const std::uint32_t procedure = data[0] & 31;
  check_call(program, procedure, body);
  check_results(program, procedure, body);
  return 0;
}
