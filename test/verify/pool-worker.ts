/** A worker of the pool with cheap schemes, for tests of the pool itself. */
import { serve } from "../../lib/verify/pool/serve.ts";
import { toy } from "./pool-toys.ts";

serve(toy);
