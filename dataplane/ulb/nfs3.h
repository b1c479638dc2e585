// SPDX-License-Identifier: Apache-2.0
//
// Upper-layer bindings of NFS version 3, NFSACL version 3 and MOUNT version 3 (RFC 8267, section 4; rows
// V1-193 to V1-197). Static constants, never freed; their functions are pure. Any thread.
#pragma once

#include "dataplane/service/api/binding.h"

namespace sluice::ulb {

inline constexpr std::uint32_t kNfsProgram = 100003;
inline constexpr std::uint32_t kNfsAclProgram = 100227;
inline constexpr std::uint32_t kMountProgram = 100005;
inline constexpr std::uint32_t kNfs3Version = 3;
/// Size in bytes of the attributes of a file.
inline constexpr std::size_t kFattr3 = 84;

/// Procedure numbers (RFC 1813, section 3).
enum Nfs3Procedure : std::uint32_t {
  kNfs3Null = 0,
  kNfs3GetAttr = 1,
  kNfs3SetAttr = 2,
  kNfs3Lookup = 3,
  kNfs3Access = 4,
  kNfs3ReadLink = 5,
  kNfs3Read = 6,
  kNfs3Write = 7,
  kNfs3Create = 8,
  kNfs3MkDir = 9,
  kNfs3SymLink = 10,
  kNfs3MkNod = 11,
  kNfs3Remove = 12,
  kNfs3RmDir = 13,
  kNfs3Rename = 14,
  kNfs3Link = 15,
  kNfs3ReadDir = 16,
  kNfs3ReadDirPlus = 17,
  kNfs3FsStat = 18,
  kNfs3FsInfo = 19,
  kNfs3PathConf = 20,
  kNfs3Commit = 21,
};
inline constexpr std::uint32_t kNfs3Procedures = 22;

/// Returns the binding of NFS version 3. WRITE data, SYMLINK path, READ data and READLINK path are eligible.
/// Other chunks are ignored.
const service::Binding& nfs3_binding() noexcept;
/// Returns the binding of NFSACL version 3, in which nothing is eligible. Chunks are ignored, as by other
/// servers of the NFS family.
const service::Binding& nfsacl3_binding() noexcept;
/// Returns the binding of MOUNT version 3 (RFC 1813, Appendix I), in which nothing is eligible.
const service::Binding& mount3_binding() noexcept;

}  // namespace sluice::ulb
