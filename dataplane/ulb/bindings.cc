// SPDX-License-Identifier: Apache-2.0
#include "dataplane/ulb/bindings.h"

#include "dataplane/ulb/nfs2.h"
#include "dataplane/ulb/nfs3.h"
#include "dataplane/ulb/nfs4.h"

namespace sluice::ulb {
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
