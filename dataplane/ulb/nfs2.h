// SPDX-License-Identifier: Apache-2.0
//
// Upper-layer bindings of NFS version 2 and NFSACL version 2 (RFC 1094; RFC 8267, section 4). Static
// constants, never freed; their functions are pure. Any thread.
#pragma once

#include "dataplane/service/api/binding.h"

namespace sluice::ulb {

inline constexpr std::uint32_t kNfs2Version = 2;

/// Procedure numbers (RFC 1094, section 2.2).
enum Nfs2Procedure : std::uint32_t {
  kNfs2Null = 0,
  kNfs2GetAttr = 1,
  kNfs2SetAttr = 2,
  kNfs2Root = 3,
  kNfs2Lookup = 4,
  kNfs2ReadLink = 5,
  kNfs2Read = 6,
  kNfs2WriteCache = 7,
  kNfs2Write = 8,
  kNfs2Create = 9,
  kNfs2Remove = 10,
  kNfs2Rename = 11,
  kNfs2Link = 12,
  kNfs2SymLink = 13,
  kNfs2MkDir = 14,
  kNfs2RmDir = 15,
  kNfs2ReadDir = 16,
  kNfs2StatFs = 17,
};
inline constexpr std::uint32_t kNfs2Procedures = 18;

/// Returns the binding of NFS version 2. WRITE data, SYMLINK path, READ data and READLINK path are eligible.
/// Other chunks are ignored.
const service::Binding& nfs2_binding() noexcept;
/// Returns the binding of NFSACL version 2, in which nothing is eligible.
const service::Binding& nfsacl2_binding() noexcept;

}  // namespace sluice::ulb
