/** The entry of a worker's thread. A program that is compiled or bundled names this file as one more entry (`docs/verify.md`). */
import type { Scheme } from "../contract.ts";
import { schemeVerifier } from "../schemes/index.ts";
import { serve } from "./serve.ts";

serve((scheme) => schemeVerifier(scheme as Scheme));
