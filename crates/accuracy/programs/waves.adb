--  A string that swings, until it is stopped.
procedure Waves is
   type Line is array (1 .. 5000) of Long_Float;
   Past, Now, Next : Line := (others => 0.0);
begin
   Now (2500) := 1.0;
   while Now (1) < 1.0 loop
      for I in 2 .. 4999 loop
         Next (I) := 1.99 * Now (I) - 0.99 * Past (I)
           + 0.2 * (Now (I - 1) - 2.0 * Now (I) + Now (I + 1));
      end loop;
      Past := Now;
      Now := Next;
   end loop;
end Waves;
