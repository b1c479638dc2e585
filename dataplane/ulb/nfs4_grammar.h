// SPDX-License-Identifier: Apache-2.0
//
// How to step over the arguments and results of each operation of NFS version 4. Made by nfs4_grammar.py from
// the XDR of RFC 7863, which has that of RFC 7531 and of version 4.1 in it; DDP-eligible items are those of
// RFC 8267, section 6.1. Not to be changed by hand.
//
//   w  a word             o  an opaque or string         [x]  a counted array
//   d  two words          E  one that is DDP-eligible    *(x) a list
//   {1:x;2:y;_:z;}  a word that says which one follows; without _ no other value is possible
#pragma once

namespace sluice::ulb {

struct OperationGrammar {
  const char* name = nullptr;  ///< null: there is no such operation
  const char* arguments = nullptr;
  const char* results = nullptr;
};

// clang-format off
inline constexpr OperationGrammar kNfs4Operations[] = {
    {},
    {},
    {},
    {"access", "w", "{0:ww;_:;}"},
    {"close", "wwwww", "{0:wwww;_:;}"},
    {"commit", "dw", "{0:ww;_:;}"},
    {"create", "{5:E;3:ww;4:ww;6:;7:;2:;_:;}o[w]o", "{0:wdd[w];_:;}"},
    {"delegpurge", "d", "w"},
    {"delegreturn", "wwww", "w"},
    {"getattr", "[w]", "{0:[w]o;_:;}"},
    {"getfh", "", "{0:o;_:;}"},
    {"link", "o", "{0:wdd;_:;}"},
    {"lock", "wwdd{1:wwwwwwdo;0:wwwww;}", "{0:wwww;10010:ddwdo;_:;}"},
    {"lockt", "wdddo", "{10010:ddwdo;0:;_:;}"},
    {"locku", "wwwwwwdd", "{0:wwww;_:;}"},
    {"lookup", "o", "w"},
    {"lookupp", "", "w"},
    {"nverify", "[w]o", "w"},
    {"open", "wwwdo{1:{0:[w]o;1:[w]o;2:ww;3:ww[w]o;};_:;}{0:o;1:w;2:wwwwo;3:o;4:;6:;5:wwww;}", "{0:wwwwwddw[w]{0:;1:wwwwwwwwo;2:wwwww{1:d;2:ww;}wwwo;3:{1:w;2:w;_:;};};_:;}"},
    {"openattr", "w", "w"},
    {"open_confirm", "wwwww", "{0:wwww;_:;}"},
    {"open_downgrade", "wwwwwww", "{0:wwww;_:;}"},
    {"putfh", "o", "w"},
    {"putpubfh", "", "w"},
    {"putrootfh", "", "w"},
    {"read", "wwwwdw", "{0:wE;_:;}"},
    {"readdir", "dwwww[w]", "{0:ww*(do[w]o)w;_:;}"},
    {"readlink", "", "{0:E;_:;}"},
    {"remove", "o", "{0:wdd;_:;}"},
    {"rename", "oo", "{0:wddwdd;_:;}"},
    {"renew", "d", "w"},
    {"restorefh", "", "w"},
    {"savefh", "", "w"},
    {"secinfo", "o", "{0:[{6:oww;_:;}];_:;}"},
    {"setattr", "wwww[w]o", "w[w]"},
    {"setclientid", "wwowoow", "{0:dww;10017:oo;_:;}"},
    {"setclientid_confirm", "dww", "w"},
    {"verify", "[w]o", "w"},
    {"write", "wwwwdwE", "{0:wwww;_:;}"},
    {"release_lockowner", "do", "w"},
    {"backchannel_ctl", "w[{0:;1:woww[w];6:woo;}]", "w"},
    {"bind_conn_to_session", "wwwwww", "{0:wwwwww;_:;}"},
    {"exchange_id", "wwow{0:;1:[w][w];2:[w][w][o][o]ww;}[oodw]", "{0:dww{0:;1:[w][w];2:[w][w]wwww[o];}doo[oodw];_:;}"},
    {"create_session", "dwwwwwwww[w]wwwwww[w]w[{0:;1:woww[w];6:woo;}]", "{0:wwwwwwwwwwww[w]wwwwww[w];_:;}"},
    {"destroy_session", "wwww", "w"},
    {"free_stateid", "wwww", "w"},
    {"get_dir_delegation", "w[w]dwdw[w][w]", "{0:{0:wwwwww[w][w][w];1:w;};_:;}"},
    {"getdeviceinfo", "wwwwww[w]", "{0:wo[w];10005:w;_:;}"},
    {"getdevicelist", "wwdww", "{0:dww[wwww]w;_:;}"},
    {"layoutcommit", "ddwwwww{1:d;0:;}{1:dw;0:;}wo", "{0:{1:d;0:;};_:;}"},
    {"layoutget", "wwwdddwwwww", "{0:wwwww[ddwwo];10058:w;_:;}"},
    {"layoutreturn", "www{1:ddwwwwo;_:;}", "{0:{1:wwww;0:;};_:;}"},
    {"secinfo_no_name", "w", "{0:[{6:oww;_:;}];_:;}"},
    {"sequence", "wwwwwwww", "{0:wwwwwwwww;_:;}"},
    {"set_ssv", "oo", "{0:o;_:;}"},
    {"test_stateid", "[wwww]", "{0:[w];_:;}"},
    {"want_delegation", "w{4:;6:;1:w;}", "{0:{0:;1:wwwwwwwwo;2:wwwww{1:d;2:ww;}wwwo;3:{1:w;2:w;_:;};};_:;}"},
    {"destroy_clientid", "d", "w"},
    {"reclaim_complete", "w", "w"},
    {"allocate", "wwwwdd", "w"},
    {"copy", "wwwwwwwwdddww[{1:o;2:o;3:oo;}]", "{0:[wwww]dwwwww;10094:ww;_:;}"},
    {"copy_notify", "wwww{1:o;2:o;3:oo;}", "{0:dwwwww[{1:o;2:o;3:oo;}];_:;}"},
    {"deallocate", "wwwwdd", "w"},
    {"io_advise", "wwwwdd[w]", "{0:[w];_:;}"},
    {"layouterror", "ddwwww[wwwwww]", "w"},
    {"layoutstats", "ddwwwwddddwwwwwo", "w"},
    {"offload_cancel", "wwww", "w"},
    {"offload_status", "wwww", "{0:d[w];_:;}"},
    {"read_plus", "wwwwdw", "{0:w[{0:do;1:dd;_:;}];_:;}"},
    {"seek", "wwwwdw", "{0:wd;_:;}"},
    {"write_same", "wwwwwddddwdo", "{0:[wwww]dwww;_:;}"},
    {"clone", "wwwwwwwwddd", "w"},
};
inline constexpr OperationGrammar kNfs4Callbacks[] = {
    {},
    {},
    {},
    {"getattr", "o[w]", "{0:[w]o;_:;}"},
    {"recall", "wwwwwo", "w"},
    {"layoutrecall", "www{1:oddwwww;2:dd;3:;}", "w"},
    {"notify", "wwwwo[[w]o]", "w"},
    {"push_deleg", "o{0:;1:wwwwwwwwo;2:wwwww{1:d;2:ww;}wwwo;3:{1:w;2:w;_:;};}", "w"},
    {"recall_any", "w[w]", "w"},
    {"recallable_obj_avail", "w[w]", "w"},
    {"recall_slot", "w", "w"},
    {"sequence", "wwwwwwww[wwww[ww]]", "{0:wwwwwwww;_:;}"},
    {"wants_cancelled", "ww", "w"},
    {"notify_lock", "odo", "w"},
    {"notify_deviceid", "[[w]o]", "w"},
    {"offload", "owwww{0:[wwww]dwww;_:d;}", "w"},
};
// clang-format on

}  // namespace sluice::ulb
