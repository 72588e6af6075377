#include "embedded.h"

#include "embed.h"

__asm__(ZAP_EMBED_BEGIN("zap_check_metal") ".incbin \"metal_prelude.metal\"\n"
                                           ".incbin \"check_headers.h\"\n"
                                           ".incbin \"check_headers.metal\"\n" ZAP_EMBED_END);
